"""A lock in a folder: a file that is locked by `flock` and has the name of its owner.

The kernel releases the lock of a process that ends, however it ends. `close` deletes the file; a
process that opened the file before it was deleted notices this and opens the new one. Standard
library only.
"""

import contextlib
import errno
import fcntl
import os
import socket
import time
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from lmzoo.base.errors import UserError
from lmzoo.lab.store.retry import retry

UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers of a file system without locks."""


@runtime_checkable
class Lock(Protocol):
    """The lock of a store."""

    def acquire(self, patience: float) -> None:
        """Take the lock, or raise a `UserError` after `patience` seconds."""
        ...

    def check(self) -> None:
        """Raise a `UserError` if another process may have the lock."""
        ...

    def close(self) -> None:
        """Release the lock."""
        ...


class LocalLock:
    """The lock file `path`; `store` is the name of the store in messages."""

    def __init__(self, path: Path, store: str) -> None:
        self._path, self._store = path, store
        self._file: IO[str] | None = None
        """The open lock file; None while this process does not have the lock."""
        self._owner = process_name()

    def acquire(self, patience: float) -> None:
        """Take the lock.

        Raises:
            UserError: Another process had it for `patience` seconds, or the file system has none.
        """
        target, folder = f"{self._store}/{self._path.name}", self._path.parent
        retry(lambda: folder.mkdir(parents=True, exist_ok=True), self._store)
        deadline = time.monotonic() + patience
        while not retry(self._try_acquire, target):
            if time.monotonic() >= deadline:
                raise in_use_error(self._store, self._read_owner() or "")
            time.sleep(0.2)

    def check(self) -> None:
        """Raise if another process has, or had, the lock; do nothing after `close`.

        A file server may give the lock of a process that was suspended to another process, which
        writes its name into the file and deletes the file when it closes the lock.
        """
        if self._file is None:
            return
        owner = self._read_owner()
        if owner not in ("", self._owner):
            raise UserError(
                f"{self._store} was locked by another process, {owner or 'which has ended'}, while "
                "this one did not respond; wait for it to end and run the same command again"
            )

    def close(self) -> None:
        """Delete the lock file, unless another process has it, and release the lock."""
        if self._file is None:
            return
        with contextlib.suppress(OSError), self._file:
            if _is_open_at(self._file, self._path) and self._read_owner() in ("", self._owner):
                self._path.unlink()
        self._file = None

    def _try_acquire(self) -> bool:
        """Lock the file and write the owner's name; return whether that succeeded."""
        while True:
            file = self._path.open("a+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_open_at(file, self._path):
                    break
            except BlockingIOError:
                file.close()
                return False
            except OSError as error:
                file.close()
                if error.errno in UNSUPPORTED:
                    raise UserError(
                        f"{self._store}: the file system has no file locks ({error.strerror}); "
                        "mount it with locks (flock), or choose another folder or s3://"
                    ) from error
                raise
            file.close()  # its last owner has deleted this file
        with contextlib.suppress(OSError):  # on a full disk the lock has no owner's name
            file.truncate(0)
            file.write(self._owner)
            file.flush()
        self._file = file
        return True

    def _read_owner(self) -> str | None:
        """Return the content of the lock file, or None if there is none."""
        try:
            return self._path.read_text(errors="replace").strip()
        except FileNotFoundError:
            return None


def process_name() -> str:
    """Return the name of this process, as written into locks."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def in_use_error(store: object, owner: str) -> UserError:
    """Return the error for a process that does not get the lock of a store."""
    return UserError(f"{store} is in use by {owner or 'another process'}; wait for it to end")


def _is_open_at(file: IO[str], path: Path) -> bool:
    """Return whether `path` still is this open file.

    The path is opened, because a client of a file server may answer `stat` from its cache.
    """
    try:
        with path.open() as current:
            return os.path.samestat(os.fstat(file.fileno()), os.fstat(current.fileno()))
    except FileNotFoundError:
        return False
