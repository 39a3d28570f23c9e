"""A store in an S3 bucket: the same interface and file names as a folder.

S3 replaces an object atomically and verifies the checksum of its content, so no backup is kept of
a replaced object. S3 has neither append nor locks. One process at a time locks a store
(`lab/store/s3_lock.py`), so a line is appended by writing the whole object again; the owner of
the lock remembers its content. Every request takes tens of milliseconds. Requests for the files of
several runs are sent together, and the epochs of a run are collected for `save_seconds`. Only
TensorBoard's event files are written to the local disk first.

Every write is conditional: an object is created only if there is none, and replaced only if it is
the one that this process has read or written last (its ETag). So an owner that was frozen between
its check of the lock and its request, and whose lock has expired, erases nothing.
"""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from lmzoo.base.errors import UserError
from lmzoo.lab.store.local import THREADS, Store
from lmzoo.lab.store.local_lock import Lock
from lmzoo.lab.store.retry import LOG, retry
from lmzoo.lab.store.s3_bucket import Bucket, StoredObject
from lmzoo.lab.store.s3_lock import S3Lock
from lmzoo.lab.store.temporary import temporary_folder


class S3Store(Store):
    """Objects below one prefix of a bucket; `path` is a temporary folder of this process."""

    save_seconds = 10.0

    def __init__(self, bucket: Bucket, prefix: str, parent: "S3Store | None" = None) -> None:
        self.bucket, self.prefix = bucket, prefix
        self._prefetched: dict[str, StoredObject | None] = parent._prefetched if parent else {}
        """Objects by key, shared with the stores of subfolders; the first read removes them."""
        self._etags: dict[str, str] = {}
        """Name -> ETag of the object that was read or written last; "" if there was none."""
        self._remembered: dict[str, bytes] = {}
        """Content, by name, of objects that only this process appends to."""
        super().__init__(_scratch_folder(os.getpid()) / bucket.name / prefix, parent)

    def __truediv__(self, name: str) -> "S3Store":
        return S3Store(self.bucket, f"{self.prefix}/{name}".strip("/"), self)

    def __str__(self) -> str:
        return f"s3://{self.bucket.name}/{self.prefix}"

    @property
    def address(self) -> str:
        return str(self)

    def read(self, name: str) -> bytes | None:
        """See `Store.read`; the first read returns the prefetched content, if there is any."""
        key = self._key(name)
        if key in self._prefetched:
            return self._know(name, self._prefetched.pop(key))
        return super().read(name)

    def prefetch(self, name: str) -> set[str]:
        """See `Store.prefetch`."""
        names = self.names()
        self.read_ahead(n for n in names if Path(n).name == name)
        return {n.partition("/")[0] for n in names if "/" in n}

    def read_ahead(self, names: Iterable[str]) -> None:
        """See `Store.read_ahead`."""
        self._prefetched.update((self._key(n), found) for n, found in self._get_together(names))

    def remember(self, name: str, data: bytes) -> None:
        """See `Store.remember`."""
        if self._is_locked():
            self._remembered[name] = data

    def take_over(self, *appended: str) -> None:
        """Do nothing: writes are conditional."""

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
        folder = temporary_folder("fetched")
        wanted = tuple(patterns)
        names = [n for n in self.names() if any(fnmatch(Path(n).name, p) for p in wanted)]
        for name, found in self._get_together(names):
            if found is not None:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(found.data)
        return folder

    def names(self) -> list[str]:
        """Return the names of all objects in this store, subfolders included."""
        start = self._key("")
        keys = retry(lambda: list(self.bucket.keys(start)), str(self))
        return [key.removeprefix(start) for key in keys]

    def _get_together(self, names: Iterable[str]) -> Iterator[tuple[str, StoredObject | None]]:
        """Yield names and objects."""
        names = list(names)

        def get(name: str) -> StoredObject | None:
            return retry(lambda: self._get(name), f"{self}/{name}")

        with ThreadPoolExecutor(THREADS) as pool:
            yield from zip(names, pool.map(get, names), strict=True)

    def _new_lock(self, name: str) -> Lock:
        """Return a lock; that of a killed process expires (`lmzoo/lab/store/s3_lock.py`)."""
        return S3Lock(self.bucket, self._key(name), str(self))

    def _lock_names(self, pattern: str) -> list[str]:
        start, _, _ = pattern.partition("*")
        prefix = self._key("")
        names = [key.removeprefix(prefix) for key in self.bucket.keys(self._key(start))]
        return [name for name in names if "/" not in name and fnmatch(name, pattern)]

    def _read(self, name: str) -> bytes | None:
        return self._know(name, self._get(name))

    def _get(self, name: str) -> StoredObject | None:
        try:
            return self.bucket.get(self._key(name))
        except FileNotFoundError:
            return None

    def _know(self, name: str, found: StoredObject | None) -> bytes | None:
        """Remember the ETag of an object that was read, and return its content."""
        self._etags[name] = found.etag if found else ""
        return found.data if found else None

    def _write(self, name: str, data: bytes, backup: str) -> None:
        if name in self._etags or not self._put_new(name, data):
            self._put_known(name, data)

    def _create(self, name: str, data: bytes) -> None:
        self._put(name, data, IfNoneMatch="*")

    def _put_new(self, name: str, data: bytes) -> bool:
        """Create an object; return False if another one exists, whose ETag is known then."""
        try:
            self._put(name, data, IfNoneMatch="*")
        except FileExistsError:
            return self._read(name) == data
        return True

    def _put_known(self, name: str, data: bytes) -> None:
        """Replace the object that was read or written last.

        Raises:
            UserError: Another process has replaced it.
        """
        etag = self._etags[name]
        condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
        try:
            self._put(name, data, **condition)
        except (FileExistsError, FileNotFoundError):
            if self._read(name) != data:  # else an earlier attempt of this request succeeded
                raise UserError(
                    f"{self}/{name} was written by another process while this one did not "
                    "respond; wait for it to end and run the same command again"
                ) from None

    def _put(self, name: str, data: bytes, **condition: str) -> None:
        self._check_lock()
        self._prefetched.pop(self._key(name), None)
        self._etags[name] = self.bucket.put(self._key(name), data, **condition)

    def _append(self, name: str, line: bytes) -> None:
        known = self._remembered.get(name)
        data = (self._read(name) or b"" if known is None else known) + line
        self._write(name, data, "")
        self.remember(name, data)

    def _delete(self, name: str) -> None:
        self._check_lock()
        self._remembered.pop(name, None)
        self._etags.pop(name, None)
        self.bucket.delete(self._key(name))

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}".lstrip("/")


@cache
def _scratch_folder(process_id: int) -> Path:
    """Return the temporary folder of a process; a forked process gets its own."""
    return temporary_folder("scratch")
