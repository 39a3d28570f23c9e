"""A store in a local or mounted folder, and the interface of every store.

A file is replaced atomically: a reader sees the old content or the new one. A line is appended
whole or not at all. One process at a time has the lock of a store. Every operation is retried
while the store is unavailable (`lmzoo/store/retry.py`). `lmzoo/store/s3.py` implements the same
interface in an S3 bucket. Standard library only.
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
    """A lock that is released by `close`."""

    def close(self) -> None: ...


class Store:
    """Files in one folder, which is created by the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: tuple[str, str] | None = None
        """Name of the lock file and the owner that this process wrote into it."""

    def __truediv__(self, name: str) -> "Store":
        return Store(self.path / name)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def address(self) -> str:
        """The argument with which `open_store` opens this store on any machine that sees it."""
        return str(self.path.resolve())

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is no such file."""
        return retry(lambda: self._read(name), f"{self}/{name}")

    def prefetch(self, name: str) -> None:
        """Read the file `name` of every subfolder in advance; a local store does nothing."""

    def write(self, name: str, data: bytes, backup: str = "") -> None:
        """Replace a file atomically; `backup` is a name under which the old file is kept."""
        retry(lambda: self._write(name, data, backup), f"{self}/{name}")

    def append(self, name: str, line: str) -> None:
        """Append a line and flush it to disk; an incomplete last line is removed first."""
        retry(lambda: self._append(name, line.encode() + b"\n"), f"{self}/{name}")

    def delete(self, *names: str) -> None:
        """Delete files; missing files are ignored."""
        for name in names:
            retry(functools.partial(self._delete, name), f"{self}/{name}")

    def lock(self, name: str, patience: float = 0.0) -> Lock:
        """Lock the store until the lock is closed or the process ends.

        Args:
            name: The lock file.
            patience: Seconds to wait for another process.

        Raises:
            UserError: Another process still has the lock; the message names it.
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
                    owner = file.read().strip()
                    file.close()
                    raise in_use_error(self, owner) from None
                time.sleep(0.2)
            else:
                with contextlib.suppress(OSError):  # on a full disk the lock has no owner's name
                    file.truncate(0)
                    file.write(process_name())
                    file.flush()
                    self._lock = name, process_name()
                return file

    def publish(self, pattern: str) -> None:
        """Copy the matching files of `path` into the store; a local store has them already."""

    def local_copy(self, patterns: Iterable[str]) -> Path:
        """Return a local folder with the files, at any depth, whose names match a pattern."""
        return self.path

    def _check_lock(self) -> None:
        """Raise if another process has the lock.

        A file server may give the lock of a process that was suspended to another process.
        """
        if self._lock is None:
            return
        name, process = self._lock
        owner = (self._read(name) or b"").decode(errors="replace")
        if owner not in ("", process):
            raise UserError(
                f"{self} was locked by another process, {owner}, while this one did not respond; "
                "wait for it to end and run the same command again"
            )

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes, backup: str) -> None:
        self._check_lock()
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.path / name
        partial = path.with_name(f".{name}.{os.getpid()}")
        try:
            partial.write_bytes(data)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)  # frees space on a full disk
            raise
        if backup and path.exists():
            path.replace(self.path / backup)
        partial.replace(path)

    def _append(self, name: str, line: bytes) -> None:
        self._check_lock()
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / name).open("a+b", buffering=0) as file:
            size = _remove_incomplete_line(file)
            try:
                written = file.write(line)
                if written < len(line):
                    file.write(line[written:])  # raises the error that cut the first write short
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(size)
                raise

    def _delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


def process_name() -> str:
    """Return the name of this process, as written into locks."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def in_use_error(store: object, owner: str) -> UserError:
    """Return the error for a process that does not get the lock of a store."""
    return UserError(f"{store} is in use by {owner or 'another process'}; wait for it to end")


def _remove_incomplete_line(file: IO[bytes]) -> int:
    """Truncate the file after its last newline and return its size."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return size
    file.seek(0)
    end = file.read().rfind(b"\n") + 1
    file.truncate(end)
    return end
