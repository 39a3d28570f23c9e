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
    message = str(error).strip().partition("\n")[0][:1000]
    message = message.encode(errors="backslashreplace").decode()  # a frame has no other text
    if isinstance(error, ProgramError):
        return message
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__}: {message}{_place(frames)}"


def described_output(lines: Sequence[str]) -> str:
    """Return the last line of a program's output, with the place of its Python traceback."""
    frames = [(m[1], int(m[2])) for m in map(FRAME.match, lines) if m]
    return f"{lines[-1].strip() if lines else 'it printed nothing'}{_place(frames)}"


def in_own_code(error: BaseException) -> bool:
    """Return whether code of the user's raised an exception, or called what did."""
    return bool(_own([(f.filename, 0) for f in traceback.extract_tb(error.__traceback__)]))


def _own(frames: Sequence[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
    installed = (sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))
    others = (str(Path(__file__).parents[1]) + os.sep, "<", *installed)
    return [frame for frame in frames if not frame[0].startswith(others)]


def _place(frames: Sequence[tuple[str, int | None]]) -> str:
    file, line = (_own(frames) or [*frames] or [("", None)])[-1]
    return f" ({Path(file).name}, line {line})" if file else ""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of a file that the block writes; an error of the disk is a `UserError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(f"cannot write {path}: {reason}; choose another place") from error


def user_path(text: str | Path) -> Path:
    """Return a path that the user wrote, with `~` expanded; a `UserError` if it cannot be one."""
    if "\0" in str(text):
        raise UserError(f"{str(text)!r} has a NUL byte, which no path has")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UserError(f"{text}: no such home folder; give another path") from None


KNOWN = 12
"""Names that a message lists when none is similar."""
OTHER_NAMES = {
    "learning rate": "lr", "batch size": "batch", "hidden size": "width", "dim": "width",
    "seq len": "length", "max length": "length", "block size": "block", "n layer": "num_layers",
}  # fmt: skip
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
    parts = [other for other in names if wanted and wanted in plain[other].split()]
    whole = [other for other in names if plain[other] == wanted]
    close = difflib.get_close_matches(wanted, plain.values(), n=3)
    similar = [other for other in names if plain[other] in close]
    similar.sort(key=lambda other: close.index(plain[other]))
    if found := list(dict.fromkeys([*whole, *sorted(parts, key=len), *similar]))[:5]:
        return f"; near: {', '.join(found)}"
    listed = ", ".join(names[:KNOWN])
    return f"; known: {listed}{', ...' if len(names) > KNOWN else ''}" if names else ""


def _plain(name: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", name.lower()))
