"""The digests that this account trusts: of code that it has saved, of what its Tune has pickled.

They are in a file in the account's own folder, `trust_file()`, which no archive and no store
reaches. The file counts only if the account owns it and no other may read or write it (mode 600).
Standard library only.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


def trust_file() -> Path:
    """Return the file; the variable counts if its path is absolute, as the XDG standard says."""
    folder = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not folder.is_absolute():
        folder = Path.home() / ".local/share"
    return folder / "lmzoo" / "trusted_code"


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the SHA-256 of paths and contents."""
    digest = hashlib.sha256()
    for path, content in sorted(files):
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def is_trusted(digest: str) -> bool:
    """Return whether the file has a digest."""
    with contextlib.suppress(OSError, RuntimeError):  # no file, no home
        number = os.open(trust_file(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(number, "rb") as file:
            if _is_own(number):
                return digest.encode() in file.read().split()
    return False


def trust(digest: str):
    """Add a digest; a file that another account could write is replaced."""
    if is_trusted(digest):
        return
    with contextlib.suppress(OSError, RuntimeError):  # then opening a run needs --trust
        path = trust_file()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(path, FLAGS, 0o600)
        if not _is_own(number):
            os.close(number)
            path.unlink()
            number = os.open(path, FLAGS | os.O_EXCL, 0o600)
        with os.fdopen(number, "ab") as file:
            file.write(digest.encode() + b"\n")


def _is_own(number: int) -> bool:
    found = os.fstat(number)
    if stat.S_IMODE(found.st_mode) & 0o077:  # others may read or write it
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
