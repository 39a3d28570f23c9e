"""The standard streams of a command: what a terminal lacks is replaced; a broken stream is said.

All output of the package goes through `sys.stdout` and `sys.stderr`. A character that the encoding
of a stream does not have is replaced by what a reader takes for it: "−" by "-", "─" by "-", "η" by
"eta", "é" by "e"; another letter by its escape, so that names stay different; a symbol by "?".
Standard library only.
"""

import codecs
import contextlib
import errno
import functools
import io
import os
import re
import sys
import threading
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lmzoo.base.errors import UserError

REPLACE = "lmzoo.replace"
"""Name of the error handler of the streams."""


@functools.cache
def spellings() -> dict[str, str]:
    """Return how characters are written in ASCII; Unicode decomposes the others."""
    groups = tomllib.loads(Path(__file__).with_name("spellings.toml").read_text("utf-8"))
    return {character: text for group, text in groups.items() for character in group}


def spell(character: str) -> str:
    """Return a character in ASCII."""
    if character in spellings():
        return spellings()[character]
    if "\u2500" <= character <= "\u259f":  # lines and blocks of tables
        return _drawn(unicodedata.name(character))
    name = unicodedata.name(character, "")
    if name.startswith("GREEK"):
        bare, _, _ = name.partition(" WITH ")  # without accents
        letter = bare.split()[-1].lower().replace("lamda", "lambda")
        if "CAPITAL" in name:
            return letter.capitalize()
        return letter
    # é is e and an accent.
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    if plain or unicodedata.category(character).startswith("M"):
        return plain  # a letter without its accents, or an accent
    if unicodedata.category(character)[0] in "LNC":  # letters, digits, control characters
        return character.encode("ascii", "backslashreplace").decode()
    return "?"


def _drawn(name: str) -> str:
    """Return a line or a block of a table by its name in Unicode."""
    if "BLOCK" in name:
        return "#"
    if name.endswith("HORIZONTAL"):
        return "-"
    return "|"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(spell, error.object[error.start : error.end])), error.end


codecs.register_error(REPLACE, _replace)


class Output(io.FileIO):
    """A standard stream whose reader may end: `lmzoo train | head` trains to its end in silence.

    What does not fit on a disk is dropped, too: in silence from stderr, which has no better place;
    from stdout with an error at the first time.
    """

    error: OSError | None = None
    """Why text was dropped."""

    def write(self, text: Any) -> int:
        # After the first error each further write would fail, too.
        if self.error is None:
            try:
                return super().write(text)
            except OSError as error:
                self.error = error
                # A reader that has ended has seen enough.
                if self.fileno() == 1 and error.errno != errno.EPIPE:
                    raise
        return len(text)


def prepare_streams():
    """Let the streams replace what they cannot write, and outlive their readers.

    A `UserError` says that stdout is closed, or that the working folder was deleted.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # The next file that is opened would have the stream's number, and get its text.
            os.open(os.devnull, os.O_RDWR)
        elif name == "stdin":
            continue
        elif stream is getattr(sys, f"__{name}__"):
            buffer = io.BufferedWriter(Output(stream.fileno(), "w", closefd=False))
            options = {"line_buffering": stream.line_buffering, "encoding": stream.encoding}
            setattr(sys, name, io.TextIOWrapper(buffer, errors=REPLACE, **options))
        else:
            with contextlib.suppress(AttributeError):  # not a file: a notebook, a test
                stream.reconfigure(errors=REPLACE)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if sys.stdout is None:
        raise UserError("stdout is closed; send it to a file or to /dev/null")
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        raise UserError("the working folder was deleted; change to another folder") from None


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that move a cursor, name a window or turn the direction of a line."""


def printable(text: str) -> str:
    r"""Return a text whose control characters are shown: `\x1b`."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def echo(text: object = "", *, err: bool = False):
    """Write a line to stdout, or to stderr."""
    stream = sys.stdout
    if err:
        stream = sys.stderr
    stream.write(f"{text}\n")
    stream.flush()


PATIENCE = 2.0
"""Seconds of silence after which a command says what it does."""


@contextlib.contextmanager
def said(what: str, state: Callable[[], str] = str) -> Iterator[None]:
    """Write what is done, and its state, to stderr if it takes longer than `PATIENCE`.

    The line comes again after ever longer times.
    """
    ended = threading.Event()

    def say():
        wait = PATIENCE
        while not ended.wait(wait):
            echo(f"{what} ...{state()}", err=True)
            wait *= 2

    # It must not keep the process alive.
    speaker = threading.Thread(target=say, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        ended.set()
        # The thread finishes its line first. A blocked stream delays the caller by a second.
        speaker.join(timeout=1.0)


def stdout_error() -> OSError | None:
    """Return why stdout could not be written; None if it was, or if its reader has ended."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    found: Any = sys.stdout
    for name in ("buffer", "raw", "error"):  # of `Output`; other streams have none
        found = getattr(found, name, None)
    if found is None or found.errno == errno.EPIPE:
        return None
    return found
