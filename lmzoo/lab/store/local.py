"""A store in a local or mounted folder, and the interface of every store.

A file is replaced atomically: a reader sees the old content or the new one. A line is appended
whole or not at all. One process at a time has a lock of a store, which protects the stores of its
subfolders too. Every operation is retried while the store is unavailable (`lab/store/writer.py`).

A process that was frozen in a write, and whose lock a file server gave to another one, writes
nothing when it wakes up: it checks its lock as late as possible, and the next owner deletes
unfinished files and replaces files that may be open by copies (`take_over`).

**The lock** is a file that is locked by `flock` and has the name of its owner. The kernel releases
the lock of a process that ends, however it ends; its forked children do not inherit it.

**A temporary folder** is locked, too. A process that is killed, as Ray kills its workers, cannot
delete its own: the next one deletes those of this account that nobody locks. Standard library only.
"""

import atexit
import errno
import fcntl
import functools
import os
import re
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from lmzoo.base.errors import UserError
from lmzoo.base.foreign import below, no_link, read_regular
from lmzoo.lab.store.writer import retry

UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers of a file system without locks."""


class Lock:
    """A lock file in a folder, and the interface of every lock."""

    pause = 0.2
    """Seconds between two attempts to take it."""

    def __init__(self, folder: Path, name: str):
        self._store = str(folder)
        """What messages call the store."""
        self._target = f"{folder}/{name}"
        self._path = folder / name
        self._file: IO[str] | None = None
        """The open lock file; None while this process does not have the lock."""
        self._owner = process_name()

    def acquire(self, patience: float):
        """Take the lock, or raise a `UserError` with its owner after `patience` seconds."""
        deadline = time.monotonic() + patience
        while not retry(self._try_acquire, self._target):
            if time.monotonic() >= deadline:
                owner = self._read_owner() or "another process"
                raise UserError(f"{self._store} is in use by {owner}; wait for it to end")
            time.sleep(self.pause)

    def check(self):
        """Raise if another process has the lock, or had it while this one was suspended."""
        if self._file is None:
            return
        owner = self._read_owner()
        if owner not in ("", self._owner):
            raise UserError(
                f"{self._store} was locked by another process, {owner or 'which has ended'}, while "
                "this one did not respond; wait for it to end and run the same command again"
            )

    def close(self):
        """Delete the lock file, unless another process has it, and release the lock."""
        if self._file is None:
            return
        with suppress(OSError), self._file:
            if _is_open_at(self._file, self._path) and self._read_owner() in ("", self._owner):
                self._path.unlink()
        self._file = None

    def _try_acquire(self) -> bool:
        """Take the lock; return whether that succeeded."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            file = os.fdopen(no_link(self._path, flags), "a+")
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
        with suppress(OSError):  # on a full disk the lock has no owner's name
            file.truncate(0)
            file.write(self._owner)
            file.flush()
        self._file = file
        HELD.add(self)
        return True

    def forget(self):
        """Close the file in a forked child: the lock is the parent's."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read_owner(self) -> str | None:
        """Return the name of the owner, or None if there is none."""
        try:
            return self._path.read_text(errors="replace").strip()
        except FileNotFoundError:
            return None


HELD = weakref.WeakSet[Lock]()
"""The locks of this process."""


def _forget_locks():
    for lock in HELD:
        lock.forget()


os.register_at_fork(after_in_child=_forget_locks)


def process_name() -> str:
    """Return the name of this process, as written into locks."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def is_alive(process: int) -> bool:
    """Return whether a process of this machine lives, in any account."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another account
        return True
    return True


def is_owned(path: Path) -> bool:
    """Return whether the owner of a lock file lives; one on another machine is taken to live."""
    if not path.exists():
        return False
    text = path.read_text("utf-8", "replace")  # see `process_name`
    found = re.match(r"process (\d+) on (.*)", text)
    if found is None:
        return False
    process, host = found.groups()
    if host.strip() != socket.gethostname():
        return True
    return is_alive(int(process))


def _is_open_at(file: IO[str], path: Path) -> bool:
    """Return whether `path` still is this file; it is opened, because `stat` may be cached."""
    try:
        with path.open() as current:
            return os.path.samestat(os.fstat(file.fileno()), os.fstat(current.fileno()))
    except FileNotFoundError:
        return False


Content = bytes | Sequence[bytes | memoryview]
"""The content of a file, or pieces of it."""
UNFINISHED = ".{}.{}"
"""A file that is being written, by its name and the id of the process."""
THREADS = 16
"""Requests at the same time."""


Method = TypeVar("Method", bound=Callable[..., Any])


def retried(method: Method) -> Method:
    """Repeat an operation on the file `name` while the store is unavailable."""

    @functools.wraps(method)
    def repeated(self: "Store", name: str, *values: Any, **options: Any) -> Any:
        return retry(lambda: method(self, name, *values, **options), f"{self}/{name}")

    return cast("Method", repeated)


class Store:
    """Files in one folder, which is created by the first write."""

    save_seconds = 1.0
    """Seconds for which a run with a `Writer` may collect epochs and write them together."""

    def __init__(self, path: Path, parent: "Store | None" = None):
        self.path = path
        self._parent = parent
        self._lock: Lock | None = None

    def __truediv__(self, name: str) -> "Store":
        return Store(self.path / name, self)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def address(self) -> str:
        """The argument with which `open_store` opens this store on any machine that sees it."""
        return str(self.path.resolve())

    @retried
    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is no such file."""
        try:
            return read_regular(self.path / name)
        except FileNotFoundError:
            return None

    @retried
    def prefetch(self, name: str) -> set[str]:
        """Return the names of the subfolders; a bucket reads the file `name` of each in advance."""
        found = set[str]()
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                if entry.is_dir():
                    found.add(entry.name)
        return found

    def read_ahead(self, names: Iterable[str]):
        """Read files of subfolders together, for one `read` each; a local store does nothing."""

    @retried
    def create(self, name: str, data: bytes):
        """Write a file that must not exist, or raise a `FileExistsError`."""
        path = self.path / name
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._replace(name, data)  # only the owner of the lock writes

    @retried
    def write(self, name: str, data: Content, backup: str = ""):
        """Replace a file atomically; the old one is kept as `backup`, but not in a bucket."""
        self._replace(name, data, backup)

    @retried
    def overwrite(self, name: str, data: Content):
        """Write a file in place, which a death may leave torn: its reader must notice that."""
        self._check_link()
        self.path.mkdir(parents=True, exist_ok=True)
        number = no_link(self.path / name, os.O_RDWR | os.O_CREAT)
        with os.fdopen(number, "r+b") as file:
            self._check_lock()  # as late as possible: this process may have been frozen
            file.writelines(pieces(data))
            file.truncate()

    @retried
    def append(self, name: str, line: str):
        """Append a line and flush it to disk; an incomplete last line is removed first."""
        self._check_link()
        self.path.mkdir(parents=True, exist_ok=True)
        data = line.encode() + b"\n"
        with open(self.path / name, "a+b", buffering=0, opener=no_link) as file:
            self._check_lock()  # as late as possible
            size = _remove_incomplete_line(file)
            try:
                written = file.write(data)
                if written < len(data):
                    file.write(data[written:])  # raises the error that cut the first write short
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    file.truncate(size)  # a line is whole or not there
                raise

    @retried
    def delete(self, name: str):
        """Delete a file, if there is one."""
        self._check_lock()
        (self.path / name).unlink(missing_ok=True)

    def lock(self, name: str, patience: float = 0.0) -> Lock:
        """Lock the store until the lock is closed or the process ends.

        A `UserError` names the process that still has the lock after `patience` seconds.
        """
        lock = self._new_lock(name)
        lock.acquire(patience)
        self._lock = lock
        return lock

    def clear_locks(self, pattern: str, patience: float):
        """Wait until no process has a lock whose name matches the pattern; delete the lock files.

        A `UserError` names a process that still has one after `patience` seconds.
        """

        def clear(name: str):
            lock = self._new_lock(name)
            lock.acquire(patience)
            lock.close()

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(clear, retry(lambda: self._lock_names(pattern), str(self))))

    @retried
    def take_over(self, name: str):
        """Keep a process that had the lock before from writing here, wherever it was stopped.

        It may have the file `name` open, to which it appends. A bucket needs none of this.
        """
        for unfinished in self.path.glob(UNFINISHED.format("*", "*")):
            if unfinished.suffix.removeprefix(".").isdecimal():
                unfinished.unlink(missing_ok=True)
        path = self.path / name
        if path.exists():  # who has the old file open appends to that
            self._replace(name, path.read_bytes(), sync=True)

    def local_copy(self, patterns: Iterable[str]) -> Path:
        """Return a local folder with the files, at any depth, whose names match a pattern."""
        return self.path

    def _new_lock(self, name: str) -> Lock:
        return Lock(self.path, name)

    def _lock_names(self, pattern: str) -> list[str]:
        return [file.name for file in self.path.glob(pattern)]

    def _check_lock(self):
        """Raise if this process has lost the lock of this store or of one above it."""
        if self._lock is not None:
            self._lock.check()
        if self._parent is not None:
            self._parent._check_lock()

    def _check_link(self):
        """Raise if this folder is a link out of the store, which who writes there may plant."""
        if self._parent is not None:
            if self.path.is_symlink():
                below(self._parent.path, self.path.name)
            self._parent._check_link()

    def _replace(self, name: str, data: Content, backup: str = "", *, sync: bool = False):
        self._check_link()
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.path / name
        partial = path.with_name(UNFINISHED.format(name, os.getpid()))
        try:
            with open(partial, "wb", opener=no_link) as file:
                file.writelines(pieces(data))
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            self._check_lock()  # as late as possible
        except (OSError, UserError):
            with suppress(OSError):
                partial.unlink(missing_ok=True)  # frees space on a full disk
            raise
        if backup and path.exists():
            _keep(path, self.path / backup)
        try:
            partial.replace(path)
        except FileNotFoundError:
            self._check_lock()  # another process has taken over, and deleted the unfinished file
            raise


def file_mark(path: Path) -> tuple[int, ...]:
    """Return numbers of which one changes when a file is replaced or written."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def pieces(data: Content) -> Sequence[bytes | memoryview]:
    """Return the pieces of the content of a file."""
    if isinstance(data, bytes):
        return [data]
    return data


def _keep(path: Path, backup: Path):
    """Keep a file under a second name, so that `path` has a content at every moment."""
    backup.unlink(missing_ok=True)
    try:
        os.link(path, backup)
    except OSError:  # a file system without links
        path.replace(backup)


def _remove_incomplete_line(file: IO[bytes]) -> int:
    """Truncate the file after its last newline and return its size."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    file.seek(size - 1)
    if file.read() == b"\n":
        return size
    file.seek(0)
    end = file.read().rfind(b"\n") + 1
    file.truncate(end)
    return end


TEMPORARY = "lmzoo-tmp-"
_REMOVALS: list[Callable[[], object]] = []
"""What deletes each temporary folder of this process."""


def temporary_folder(purpose: str) -> Path:
    """Create a folder that other accounts cannot read; this process deletes it when it ends."""
    delete_abandoned()
    new = Path(tempfile.mkdtemp(prefix=f".{TEMPORARY}{purpose}-"))
    creator = os.getpid()
    _lock(new)  # until this process ends; before it has the name that others look for
    folder = new.rename(new.with_name(new.name[1:]))

    def remove():
        if os.getpid() == creator:  # a forked process inherits this exit handler
            shutil.rmtree(folder, ignore_errors=True)

    # No `weakref.finalize`: another thread may call those, and not finish before this process ends.
    atexit.register(remove)
    _REMOVALS.append(remove)
    return folder


def delete_temporary():
    """Delete the temporary folders of this process, which will end without its exit handlers."""
    for remove in _REMOVALS:
        remove()


def delete_abandoned():
    """Delete the temporary folders of processes that were killed."""
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry for entry in entries if entry.name.startswith(TEMPORARY)]
    for entry in found:
        with suppress(OSError):  # locked, deleted by another process, no locks here
            # Those of other accounts stay.
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                lock = _lock(Path(entry.path))
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _lock(folder: Path) -> int:
    """Lock a folder and return its file descriptor; an OSError if another process has."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        raise
    return opened
