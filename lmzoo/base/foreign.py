"""The one door for names and archives that somebody else wrote. Standard library only.

A member of an archive, a key of a bucket, a name in a file of records or of a module becomes a path
below one folder here, or a `UserError` that has the name. What any system reads otherwise is
refused: absolute paths, `..`, drives, backslashes, control characters, names that Windows reserves,
names that differ only by case or by the normalisation of Unicode, links out of the folder, pipes.
"""

import contextlib
import os
import re
import stat
import unicodedata
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from lmzoo.base.errors import UserError

FORBIDDEN = "[\0-\x1f\x7f-\x9f\\\\\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
"""Control and invisible characters, backslashes, and bytes that are no UTF-8."""
RESERVED = r"(?is)(con|prn|aux|nul|(com|lpt)[0-9¹²³])(\..*)?|[a-z]:.*|.*[. ]"
"""Devices and drives of Windows, and ends that it drops."""
PART = 255
WHOLE = 1024
"""Most bytes of a part of a name, and of a name."""
MEMBERS = 1_000_000
LEAST = 2**28
RATIO = 200
"""Most members of an archive. Its content may have the larger of LEAST bytes and RATIO times its
own size."""


def parts_of(name: str) -> list[str]:
    """Return the parts of a foreign name; a `UserError` if it is no path below a folder."""
    if isinstance(name, str) and len(name) <= WHOLE:
        parts = name.split("/")
        if all(map(is_plain, parts)):
            return parts
    raise _refusal(name, "it is no plain path below one folder")


def is_plain(part: str) -> bool:
    """Return whether a part of a foreign name is one on any system."""
    # Checked on every system, because a store may move to another one.
    if part in ("", ".", "..") or re.search(FORBIDDEN, part) or re.fullmatch(RESERVED, part):
        return False
    return len(part.encode()) <= PART


def _refusal(name: object, why: str) -> UserError:
    return UserError(f"the name {ascii(name)[:200]} is refused, as {why}; its author may mean harm")


def below(root: Path, name: str) -> Path:
    """Return the path that a foreign name means below `root`, links followed."""
    path = root.joinpath(*parts_of(name))
    try:
        with contextlib.suppress(FileNotFoundError):
            path.resolve(strict=True)  # without `strict`, Python 3.13 ignores a loop of links
        is_inside = path.resolve().is_relative_to(root.resolve())
        if is_inside and path.exists() and not (path.is_file() or path.is_dir()):
            raise _refusal(name, "it is a pipe or a device")
    except (OSError, RuntimeError):  # a loop of links
        is_inside = False
    if not is_inside:
        raise _refusal(name, f"it is a link out of {root}")
    return path


def checked(names: Iterable[str]) -> list[str]:
    """Return foreign names that are to be in one folder; two that may be one file are refused."""
    known = {}
    """Each name and each folder above it, as a system that ignores case and form sees it."""
    folders = set()
    files = list(dict.fromkeys(names))
    for name in files:
        parts = parts_of(name)
        for end in range(1, len(parts) + 1):
            start = "/".join(parts[:end])
            # As the file systems of Windows and macOS compare names.
            form = unicodedata.normalize("NFKC", start).casefold()
            if known.setdefault(form, start) != start:
                raise _refusal(name, f"{known[form]!a} differs from it by case or form only")
            if end < len(parts):
                folders.add(start)
    both = folders.intersection(files)
    if both:
        raise _refusal(min(both), "it is a file and a folder")
    return files


def all_below(root: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the path of each foreign name below `root`; see `below` and `checked`."""
    return {name: below(root, name) for name in checked(names)}


def read_regular(path: str | Path) -> bytes:
    """Return the content of a file; a `UserError` if it is a pipe or a device, without end."""
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _refusal(str(path), "it is a pipe or a device")
        return file.read()


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def no_link(path: Path | str, flags: int) -> int:
    """Open a file to write it; in a shared store, a link could lead to any file of this account."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def most_bytes(packed: int) -> int:
    """Return how large the content of an archive of so many bytes may be."""
    return max(LEAST, RATIO * packed)


def unpacked(file: IO[bytes], packed: int) -> bytes:
    """Return the content of a packed file of so many bytes; a `UserError` if it is too large."""
    content = file.read(most_bytes(packed) + 1)
    # One byte more was read, to see that it goes on.
    if len(content) > most_bytes(packed):
        raise UserError(f"it has more than {RATIO} times its {packed:,} bytes when it is unpacked")
    return content


def check_archive(archive: zipfile.ZipFile, path: str | Path, packed: int):
    """Raise a `UserError` if a zip file has too many members, too large ones, links or devices.

    `zipfile` reads no more of a member than the size that is checked here.
    """
    members = archive.infolist()
    size = sum(member.file_size for member in members)
    if len(members) > MEMBERS or size > most_bytes(packed):
        raise UserError(
            f"{path} has {len(members):,} members of {size:,} bytes in {packed:,}, more than any "
            "archive of lmzoo; its author may mean harm"
        )
    for member in members:
        # Zip files from Unix have the mode in the upper 16 bits.
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _refusal(member.filename, "it is a link, a pipe or a device")
