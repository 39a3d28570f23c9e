"""The files that programs of the user read: path -> digest. Standard library only.

A process of Python notes them itself (`sitecustomize.py`). They are a part of a run's identity, as
the files are that its command names. A run that has read other content than is there now, or than
an earlier run of the process, is no result.
"""

import contextlib
import functools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lmzoo.base.environment import Environment, counted
from lmzoo.base.errors import ProgramError
from lmzoo.lab.store.local import temporary_folder
from lmzoo.lab.store.opened import sitecustomize as hook

Files = Mapping[str, str]
"""Path, relative to the working folder if it is below it, and digest or mark of `sitecustomize`."""
WRITTEN = "-"
SEEN: dict[str, str] = {}
"""Path -> digest or mark, as the first run of this process, or of a judge, has read it.

Also what else may not change: name of a package or variable, and the command -> its value.
"""
_noting = False


def new_log() -> Path:
    """Return a new temporary file of what is read; files near it are left out there."""
    return Path(tempfile.mkdtemp(dir=_folder()), "log")


@functools.cache
def _folder() -> Path:
    return temporary_folder("opened")


def variables(log: Path) -> dict[str, str]:
    """Return variables with which processes of Python note in a log what they read."""
    # Python imports the first `sitecustomize` on its path.
    paths = filter(None, [hook.HERE, os.environ.get("PYTHONPATH")])
    # The time tells files that the run writes from those that it finds.
    return {hook.VARIABLE: f"{time.time()}:{log}", "PYTHONPATH": os.pathsep.join(paths)}


def with_hook(command: str) -> str:
    """Return a shell command that keeps `variables` if it sets PYTHONPATH."""
    return command.replace("PYTHONPATH=", f"PYTHONPATH={hook.HERE}:")


def read_log(log: Path, folder: Path | None = None) -> Files:
    """Return the files of a log, relative to a folder; none if no Python has written one."""
    files = dict[str, str]()
    if log.exists():
        for line in os.fsdecode(log.read_bytes()).splitlines():
            mark, _, path = line.partition(" ")
            files[path.removeprefix(f"{folder}/")] = mark
    return files


def inputs(read: Files) -> dict[str, str]:
    """Return those of the files that decide a result, without what the run may have written."""
    # A mark with a sign is of a file that the run has written, or may have.
    return {name: mark for name, mark in read.items() if mark.isalnum()}


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Note in `own_log()` what this process reads meanwhile."""
    global _noting
    own_log()
    _noting = True
    try:
        yield
    finally:
        _noting = False


@functools.cache
def own_log() -> Path:
    """Return the log of this process."""
    log = new_log()
    look = hook.recorder(time.time(), str(log))

    def hear(event: str, args: Any):
        if _noting:
            look(event, args)

    sys.addaudithook(hear)  # until the process ends: Python removes no hook
    return log


def digest(path: Path) -> str:
    """Return the digest of a file; "" if there is none."""
    try:
        return _digest(str(path), path.stat().st_ctime_ns)  # cached until the file changes
    except OSError:
        return ""


@functools.lru_cache(1 << 12)
def _digest(path: str, _changed: int) -> str:
    return hook.digest(path)


def changes(files: Files, folder: Path) -> dict[str, str]:
    """Return those of the files that have other content now, with its digest.

    A missing file counts as unchanged: this machine may not have the data of the others.
    """
    found = {}
    for name, known in files.items():
        now = digest(folder / name)
        if now not in ("", known):
            found[name] = now
    return found


def check_files(planned: Files, read: Files, folder: Path):
    """Raise a `ProgramError` if the files of a run have changed, so that it is no result.

    `planned` are those of its identity. One that programs write themselves, as `--log FILE` may
    be, does not count; a file that was read has to stay as it was.
    """
    for name, mark in (dict(planned) | dict(read)).items():
        path = folder / name
        own = mark.removeprefix("+")
        first = SEEN.setdefault(str(path), own)
        # The program's own output may change.
        if own == WRITTEN:
            SEEN[str(path)] = own
            continue
        if first == WRITTEN and name not in read:
            continue
        if digest(path) not in ("", own) or first not in (own, WRITTEN):
            raise ProgramError(
                f"{name} has changed since the sweep began; run the same command again; if the "
                "program writes it, let each run write a file of its own"
            )


def check_environment(program: str, found: Environment):
    """Raise a `ProgramError` if a package or variable of a program differs from its first run."""
    for name, value in counted(found, program=True).items():
        first = SEEN.setdefault(f"{name} of {program}", value)
        if first != value:
            raise ProgramError(
                f"{name} was {first} when the sweep began, and is {value}; run the same command "
                "again"
            )
