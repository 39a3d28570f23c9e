"""The files that a shell command names, which are a part of what it trains."""

import os
import re
import shutil
import sysconfig
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from lmzoo.base.environment import environment, place_of

WORDS = re.compile(r"""[()>]|[^\s;&|()<>'"`]+""")
WRITES = re.compile("(>|tee|-o|--out(put)?)(=.*)?")
"""The word before a file that a command writes, or with it: `-o=log.txt`."""
ONLY_PYTHON = re.compile(
    r"([\s(]|\w+=\S*|(cd|timeout|nice -n) \S+\s*(&&|;)?|env|time|nohup|(ba)?sh -c [\"']|\S*uv run)*"
    r"\S*(python[\d.]*|torchrun|accelerate launch)\b"
    r"[^;&|]*([;&|>]+ *(\d|true|tail|head|tee|grep)\b[^;&|]*)*"
)
"""A command that starts Python and nothing else that may read code: no `make`, no `Rscript`."""
PYTHON = re.compile(r"(.*/)?python[\d.]*")
MOST = 1 << 20
"""Bytes of a file that may be code."""


def named_files(command: str, folder: Path) -> list[str]:
    """Return the files that a shell command names, without those that it writes: `> log.txt`.

    Those below the folder, which is absolute, are relative. Known are `cd`, subshells, variables,
    `-m`, `--config=FILE` and `@FILE`.
    """
    found = {}
    here = folder
    outside = [folder]
    """The folders in which the subshells around were started."""
    before = ""
    for word in WORDS.findall(os.path.expandvars(command)):
        value = os.path.expanduser(word.rpartition("=")[2].removeprefix("@"))  # noqa: PTH111
        if before == "-m":
            value = value.replace(".", "/") + ".py"
        path = here / value
        is_written = any(map(WRITES.fullmatch, (before, word)))
        if word == "(":
            outside.append(here)
        elif word == ")":
            here = folder
            if outside:
                here = outside.pop()
        elif before == "cd":
            here = path
        # Not `Path.is_file`, which refuses a word that is too long for a name.
        elif os.path.isfile(path) and not is_written:  # noqa: PTH113
            found[os.path.normpath(path).removeprefix(f"{folder}/")] = None
        before = word
    return list(found)


def command_environment(command: str, folder: Path, read: Iterable[str] = ()) -> dict[str, Any]:
    """Return the environment in which a command runs; `read` are files that it has read."""
    names = set(named_files(command, folder))
    # Imports of imports, as far as the program has noted them.
    names.update(name for name in read if name.endswith(".py"))
    sources = [command.encode()]
    for name in names:
        file = folder / name
        if file.is_file() and file.stat().st_size < MOST:
            sources.append(file.read_bytes())
    place = place_of(package_folders(command))
    return environment(sources=sources, place=place)


def package_folders(command: str) -> list[str]:
    """Return where the Python of a command has its packages; [] if it is that of this process."""
    words = WORDS.findall(os.path.expandvars(command))
    program = next(filter(PYTHON.fullmatch, words), "")
    found = shutil.which(os.path.expanduser(program))  # noqa: PTH111
    if not found:
        return []
    root = Path(found).parents[1]
    folders = [str(path) for path in root.glob("lib/python3*/*-packages")]
    # Then the versions of this process are those of the command.
    if sysconfig.get_path("purelib") in folders:
        return []
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return folders + [folder for folder in own if folder]


def noticed(command: str, files: Collection[str], *, noted: bool) -> str:
    """Return of which files edits are noticed, if the command may have others; else "".

    `noted`: its earlier runs have said what Python opens.
    """
    if noted and ONLY_PYTHON.fullmatch(command):
        return ""
    names = list(files)
    if noted:
        names.append("what Python opens")
    return f"edits are noticed of {', '.join(names) or 'none of its files'}"
