"""Temporary folders that do not outlive their process.

A process deletes its folders when it ends. A process that is killed, as Ray kills its workers,
cannot. So each folder is locked by `flock`, which the kernel releases, and the next process that
makes a temporary folder deletes those of this account that nobody locks. Standard library only.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

PREFIX = "lmzoo-tmp-"


def temporary_folder(purpose: str) -> Path:
    """Create a folder that other accounts cannot read; this process deletes it when it ends."""
    delete_abandoned()
    new, creator = Path(tempfile.mkdtemp(prefix=f".{PREFIX}{purpose}-")), os.getpid()
    _lock(new)  # until this process ends; before it has the name that others look for
    folder = new.rename(new.with_name(new.name[1:]))

    def remove() -> None:
        if os.getpid() == creator:  # a forked process inherits this exit handler
            shutil.rmtree(folder, ignore_errors=True)

    weakref.finalize(temporary_folder, remove)
    return folder


def delete_abandoned() -> None:
    """Delete the temporary folders of processes that were killed."""
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry for entry in entries if entry.name.startswith(PREFIX)]
    for entry in found:
        with contextlib.suppress(OSError):  # locked, deleted by another process, no locks here
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
