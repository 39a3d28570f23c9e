"""Where files of a store lie: a folder here, or (`lmzoo/store/s3.py`) a prefix of a bucket.

A file is written whole or not at all; a line is appended whole or not at all; and one
process at a time holds a place. A file server may give a lock to another while its holder
stands still, so who writes to a place that it holds looks first whose name is in the lock.
Every call waits for a store that is away for a while
(`lmzoo/store/retry.py`). Standard library only.
"""

import contextlib
import fcntl
import functools
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from lmzoo.errors import UserError
from lmzoo.store.retry import retry


@runtime_checkable
class Lock(Protocol):
    """A place that is held until this is closed."""

    def close(self) -> None: ...


class Store:
    """A folder of this machine, or one that it has mounted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: tuple[str, str] | None = None
        """The lock by which this process holds the place, and what it wrote into it."""

    def __truediv__(self, name: str) -> "Place":
        return Store(self.path / name)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def address(self) -> str:
        """What `lmzoo/store/open.py` makes this place of, on any machine that sees it."""
        return str(self.path.resolve())

    def read(self, name: str) -> bytes | None:
        """The file's bytes; None if there is no such file."""
        return retry(lambda: self._read(name), f"{self}/{name}")

    def prefetch(self, name: str) -> None:
        """Make ready to read the file of this name in every folder below: here they are near."""

    def write(self, name: str, data: bytes, keep: str = "") -> None:
        """Replace the file; a reader sees the old or the new, which is kept as `keep`, if given."""
        retry(lambda: self._write(name, data, keep), f"{self}/{name}")

    def append(self, name: str, line: str) -> None:
        """Add a line and bring it to the disk; what a killed writer left of another is cut off."""
        retry(lambda: self._append(name, line.encode() + b"\n"), f"{self}/{name}")

    def delete(self, *names: str) -> None:
        """Delete files, whether they exist or not."""
        for path in (self.path / name for name in names):
            retry(functools.partial(path.unlink, missing_ok=True), str(path))

    def lock(self, name: str, patience: float = 0.0) -> Lock:
        """Hold the place by the lock `name`, until closed or the process ends, however it ends.

        Raises:
            UserError: somebody else holds it, and did for `patience` seconds; it names them.
        """
        retry(lambda: self.path.mkdir(parents=True, exist_ok=True), str(self))
        file = retry(lambda: (self.path / name).open("a+"), f"{self}/{name}")
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    file.seek(0)
                    holder = file.read().strip()
                    file.close()
                    raise in_use_error(self, holder) from None
                time.sleep(0.2)
            else:
                with contextlib.suppress(OSError):  # a full disk: the lock holds, its name is lost
                    file.truncate(0)
                    file.write(process_name())
                    file.flush()
                    self._held = name, process_name()
                return file

    def publish(self, pattern: str) -> None:
        """Let other machines see the files that were written to `path` directly: they do."""

    def local_copy(self, names: Iterable[str]) -> Path:
        """A local folder with the files below whose names are `names` (globs): this one."""
        return self.path

    def _check(self) -> None:
        if self._held is None:
            return
        name, holder = self._held
        found = (self._read(name) or b"").decode(errors="replace")
        if found not in ("", holder):
            raise UserError(f"{self} is no longer held: {found} has its lock")

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes, keep: str) -> None:
        self._check()
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.path / name
        partial = path.with_name(f".{name}.{os.getpid()}")
        try:
            partial.write_bytes(data)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)  # it takes what little space there is
            raise
        if keep and path.exists():
            path.replace(self.path / keep)
        partial.replace(path)

    def _append(self, name: str, line: bytes) -> None:
        self._check()
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / name).open("a+b", buffering=0) as file:
            size = _cut_torn_line(file)
            try:
                written = file.write(line)
                if written < len(line):
                    file.write(line[written:])  # says why: there is no space
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(size)
                raise


def process_name() -> str:
    """This process, for whoever is refused."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def in_use_error(where: Store, holder: str) -> UserError:
    """What is said to a second holder."""
    return UserError(f"{where} is in use by {holder or 'another process'}; wait for it to end")


def _cut_torn_line(file: IO[bytes]) -> int:
    """Bytes of the whole lines; whatever is after them is cut off."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return size
    file.seek(0)
    whole = file.read().rfind(b"\n") + 1
    file.truncate(whole)
    return whole
