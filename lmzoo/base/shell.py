"""The files that a shell command names, which are a part of what it trains."""

import os
import re
from collections.abc import Collection
from pathlib import Path

WORDS = re.compile(r"""[()>]|[^\s;&|()<>'"`]+""")
WRITES = re.compile("(>|tee|-o|--out(put)?)(=.*)?")
"""The word before a file that a command writes, or with it: `-o=log.txt`."""
ONLY_PYTHON = re.compile(
    r"([\s(]|\w+=\S*|(cd|timeout|nice -n) \S+\s*(&&|;)?|env|time|nohup|(ba)?sh -c [\"']|\S*uv run)*"
    r"\S*(python[\d.]*|torchrun|accelerate launch)\b"
    r"[^;&|]*([;&|>]+ *(\d|true|tail|head|tee|grep)\b[^;&|]*)*"
)
"""A command that starts Python and nothing else that may read code: no `make`, no `Rscript`."""
MOST = 1 << 20
"""Bytes of a file that may be code."""


def named_files(command: str, folder: Path) -> list[str]:
    """Return the files that a shell command names, without those that it writes: `> log.txt`.

    Those below the folder, which is absolute, are relative. Known are `cd`, subshells, variables,
    `-m`, `--config=FILE` and `@FILE`.
    """
    found, here, outside, before = dict[str, None](), folder, [folder], ""
    for word in WORDS.findall(os.path.expandvars(command)):
        value = os.path.expanduser(word.rpartition("=")[2].removeprefix("@"))  # noqa: PTH111
        path = here / (value.replace(".", "/") + ".py" if before == "-m" else value)
        if word == "(":
            outside.append(here)
        elif word == ")":
            here = outside.pop() if outside else folder
        elif before == "cd":
            here = path
        # Not `Path.is_file`, which refuses a word that is too long for a name.
        elif os.path.isfile(path) and not WRITES.fullmatch(before) and not WRITES.fullmatch(word):  # noqa: PTH113
            found[os.path.normpath(path).removeprefix(f"{folder}/")] = None
        before = word
    return [*found]


def command_sources(command: str, folder: Path) -> list[bytes]:
    """Return a command and the content of the files that it names, for its environment."""
    files = (folder / name for name in named_files(command, folder))
    return [command.encode(), *(f.read_bytes() for f in files if f.stat().st_size < MOST)]


def noticed(command: str, files: Collection[str], *, noted: bool) -> str:
    """Return of which files edits are noticed, if the command may have others; else "".

    `noted`: its earlier runs have said what Python opens.
    """
    if noted and ONLY_PYTHON.fullmatch(command):
        return ""
    names = ", ".join([*files, *["what Python opens"] * noted]) or "none of its files"
    return f"edits are noticed of {names}"
