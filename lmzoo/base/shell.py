"""The files that a shell command names, which are a part of what it trains."""

import os
import re
import shlex
from itertools import pairwise
from pathlib import Path

WRITES = re.compile("(>|^tee|^-o|^--out(put)?)$")
"""The word before a file that a command writes."""


def named_files(command: str, folder: Path) -> list[str]:
    """Return the files that a shell command names, without those that it writes: `> log.txt`."""
    try:
        words = shlex.split(command)
    except ValueError:  # quotes that the shell will complain about
        return []
    written = {word.rstrip(";") for before, word in pairwise(words) if WRITES.search(before)}
    # Not `Path.is_file`, which refuses a word that is too long for a name.
    return [w for w in words if w not in written and os.path.isfile(folder / w)]  # noqa: PTH113


def command_sources(command: str, folder: Path) -> list[bytes]:
    """Return a command and the content of the files that it names, for its environment."""
    return [command.encode(), *((folder / f).read_bytes() for f in named_files(command, folder))]
