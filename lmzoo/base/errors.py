"""The exception for invalid user input.

The command line prints a `UserError` as one line on stderr and exits with code 2. Every other
exception in the code of lmzoo is a bug: one line and code 70.
"""

import contextlib
import difflib
import errno
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

FRAME = re.compile(r'\s*File "(.+)", line (\d+)')
Frame = tuple[str, int | None]
"""A file, and a line of it."""


class UserError(ValueError):
    """Invalid input. The message is one line: what is wrong, the value, and what to do."""

    def __str__(self) -> str:
        return super().__str__().replace("\n", " ")  # a value, such as a frame, may have several

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows."""
        return [f"UserError: {self}"]


class ProgramError(RuntimeError):
    """A command of the user failed. The message is one line, with its place if that is known."""


def describe_error(error: BaseException) -> str:
    """Return an exception as one line: "ValueError: no such gate (mine.py, line 31)".

    The place is the last one in the user's code; without any, the last one.
    """
    # Some libraries write pages.
    message = str(error).strip().partition("\n")[0][:1000]
    message = message.encode(errors="backslashreplace").decode()  # a frame has no other text
    if isinstance(error, ProgramError):
        return message
    return f"{type(error).__name__}: {message}{_place(_frames(error))}"


def _frames(error: BaseException) -> list[Frame]:
    """Return the places of a traceback, the last call last."""
    return [(call.filename, call.lineno) for call in traceback.extract_tb(error.__traceback__)]


def described_output(lines: Sequence[str]) -> str:
    """Return the last line of a program's output, with the place of its Python traceback."""
    if not lines:
        return "it printed nothing"
    frames: list[Frame] = []
    for line in lines:
        found = FRAME.match(line)
        if found:
            frames.append((found[1], int(found[2])))
    return lines[-1].strip() + _place(frames)


def in_own_code(error: BaseException) -> bool:
    """Return whether code of the user's raised an exception, or called what did."""
    return bool(_of_user(_frames(error)))


def _of_user(frames: Sequence[Frame]) -> list[Frame]:
    others = [str(Path(__file__).parents[1]) + os.sep, "<"]  # ours, and <string>
    for name in ("stdlib", "purelib", "platlib"):
        others.append(sysconfig.get_path(name) + os.sep)
    return [frame for frame in frames if not frame[0].startswith(tuple(others))]


def _place(frames: Sequence[Frame]) -> str:
    last = (_of_user(frames) or frames)[-1:]
    for file, line in last:
        return f" ({Path(file).name}, line {line})"
    return ""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of a file that the block writes; an error of the disk is a `UserError`."""
    try:
        # Before the work, whose result would be lost.
        path.parent.mkdir(parents=True, exist_ok=True)
        existing = path
        if not path.exists():
            existing = path.parent
        if not os.access(existing, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        yield
    except OSError as error:
        reason = disk_reason(error)
        raise UserError(f"cannot write {path}: {reason}; choose another place") from error


def disk_reason(error: OSError) -> str:
    """Return what the system says of an error, or its type if it says nothing."""
    if error.strerror is None:
        return type(error).__name__
    return error.strerror


def user_path(text: str | Path) -> Path:
    """Return a path that the user wrote, with `~` expanded; a `UserError` if it cannot be one."""
    if "\0" in str(text):
        raise UserError(f"{str(text)!r} has a NUL byte, which no path has")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UserError(f"{text}: no such home folder; give another path") from None


MOST_NEAR = 5
KNOWN = 12
"""Names that a message lists when none is similar."""
OTHER_NAMES = {
    "learning rate": "lr",
    "batch size": "batch",
    "hidden size": "width",
    "dim": "width",
    "seq len": "length",
    "max length": "length",
    "block size": "block",
    "n layer": "num_layers",
}
"""Names of other libraries -> ours."""


def near(name: str, known: Iterable[str]) -> str:
    """Return "; near: similar names", or "; known: the first names", for a message.

    Case, punctuation and a missing first or last part of a name do not count: `LSTM` is near
    `lstm_lm`, and `width` near `model.width`.
    """
    names = list(dict.fromkeys(known))
    name = OTHER_NAMES.get(_plain(name), name)
    plain = {other: _plain(other) for other in names}
    wanted = _plain(name)
    # `width` for `model.width`.
    parts = [other for other in names if wanted and wanted in plain[other].split()]
    # `LSTM-lm` for `lstm_lm`.
    whole = [other for other in names if plain[other] == wanted]
    # Typing errors.
    close = difflib.get_close_matches(wanted, plain.values(), n=3)
    similar = [other for other in names if plain[other] in close]
    similar.sort(key=lambda other: close.index(plain[other]))
    found = dict.fromkeys(whole + sorted(parts, key=len) + similar)
    if found:
        return f"; near: {', '.join(list(found)[:MOST_NEAR])}"
    if not names:
        return ""
    listed = ", ".join(names[:KNOWN])
    if len(names) > KNOWN:
        listed += ", ..."
    return f"; known: {listed}"


def _plain(name: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", name.lower()))
