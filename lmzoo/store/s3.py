"""A store in an S3 bucket: the same interface and file names as a folder.

S3 replaces an object atomically, but has neither append nor locks. One process at a time locks a
store (`lmzoo/store/s3_lock.py`), so a line is appended by reading the object and writing it again
with the line. Only TensorBoard's event files are written to the local disk first.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from lmzoo.errors import UserError
from lmzoo.store.local import Lock, Store
from lmzoo.store.retry import LOG, retry
from lmzoo.store.s3_bucket import Bucket
from lmzoo.store.s3_lock import S3Lock

THREADS = 16
"""Objects that are read at the same time."""


class S3Store(Store):
    """Objects below one prefix of a bucket; `path` is a temporary folder of this process."""

    def __init__(self, bucket: Bucket, prefix: str) -> None:
        self.bucket, self.prefix = bucket, prefix
        self._s3_lock: S3Lock | None = None
        self._prefetched: dict[str, bytes] = {}
        """Content by key; shared with the stores of subfolders, removed by the first read."""
        super().__init__(_scratch_folder(os.getpid()) / bucket.name / prefix)

    def __truediv__(self, name: str) -> "S3Store":
        child = S3Store(self.bucket, f"{self.prefix}/{name}".strip("/"))
        child._prefetched = self._prefetched
        return child

    def __str__(self) -> str:
        return f"s3://{self.bucket.name}/{self.prefix}"

    @property
    def address(self) -> str:
        return str(self)

    def read(self, name: str) -> bytes | None:
        """See `Store.read`; the first read returns the prefetched content, if there is any."""
        data = self._prefetched.pop(self._key(name), None)
        return super().read(name) if data is None else data

    def prefetch(self, name: str) -> None:
        """Read the object `name` of every subfolder now, several at the same time."""
        objects = {self._key(key): data for key, data in self._read_matching((name,))}
        self._prefetched.update(objects)

    def lock(self, name: str, patience: float = 0.0) -> Lock:
        """See `Store.lock`; the lock of a killed process expires (`lmzoo/store/s3_lock.py`)."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._s3_lock = S3Lock(self.bucket, self._key(name), str(self))
        self._s3_lock.acquire(patience)
        return self._s3_lock

    def publish(self, pattern: str) -> None:
        """Upload the matching files of `path` and delete them; log those that fail."""
        for file in self.path.glob(pattern):
            try:
                self.bucket.put(self._key(file.name), file.read_bytes())
                file.unlink()
            except (OSError, UserError) as error:
                LOG.warning("%s/%s was not uploaded: %s", self, file.name, error)

    def local_copy(self, patterns: Iterable[str]) -> Path:
        """Download the objects whose last path segment matches a pattern."""
        folder = _temporary_folder("lmzoo-fetched-")
        for key, data in self._read_matching(tuple(patterns)):
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            (folder / key).write_bytes(data)
        return folder

    def names(self) -> list[str]:
        """Return the names of all objects in this store, subfolders included."""
        start = self._key("")
        keys = retry(lambda: list(self.bucket.keys(start)), str(self))
        return [key.removeprefix(start) for key in keys]

    def _read_matching(self, patterns: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of the objects whose last path segment matches a pattern."""
        names = [n for n in self.names() if any(fnmatch(Path(n).name, p) for p in patterns)]
        with ThreadPoolExecutor(THREADS) as pool:
            for name, data in zip(names, pool.map(self.read, names), strict=True):
                if data is not None:
                    yield name, data

    def _check_lock(self) -> None:
        if self._s3_lock:
            self._s3_lock.check()

    def _read(self, name: str) -> bytes | None:
        try:
            return self.bucket.get(self._key(name)).data
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes, backup: str) -> None:
        self._check_lock()
        self._prefetched.pop(self._key(name), None)
        if backup:
            with suppress(FileNotFoundError):
                self.bucket.copy(self._key(name), self._key(backup))
        self.bucket.put(self._key(name), data)

    def _append(self, name: str, line: bytes) -> None:
        self._write(name, (self._read(name) or b"") + line, "")

    def _delete(self, name: str) -> None:
        self.bucket.delete(self._key(name))

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}".lstrip("/")


@cache
def _scratch_folder(process_id: int) -> Path:
    """Return the temporary folder of a process; a forked process gets its own."""
    return _temporary_folder("lmzoo-scratch-")


def _temporary_folder(prefix: str) -> Path:
    """Create a folder that other accounts cannot read; this process deletes it when it ends."""
    folder, creator = Path(tempfile.mkdtemp(prefix=prefix)), os.getpid()

    def remove() -> None:
        if os.getpid() == creator:  # a forked process inherits this exit handler
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
