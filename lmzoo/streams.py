"""The standard streams of a command: what a terminal lacks is replaced; a broken stream is said.

All output of the package goes through `sys.stdout` and `sys.stderr`. A character that the encoding
of a stream does not have is replaced by what a reader takes for it: "−" by "-", "─" by "-", "η" by
"eta", "é" by "e"; another letter by its escape, so that names stay different; a symbol by "?".
Standard library only.
"""

import codecs
import contextlib
import os
import sys
import unicodedata

from lmzoo.errors import UserError

REPLACE = "lmzoo.replace"
"""Name of the error handler of the streams."""
SPELLINGS = {
    "−‐‑‒–—―⁻": "-", "‖": "||", "±": "+-", "≡": "==", "≈": "~", "≤": "<=", "≥": ">=", "≠": "!=",
    "→": "->", "←": "<-", "↔": "<->", "×": "x", "·•∘⊙∗": "*", "⊕": "(+)", "√": "sqrt", "∂": "d",
    "∞": "inf", "∈": " in ", "∪": " or ", "∝": " ~ ", "∇": "grad", "⌈⌊": "[", "⌉⌋": "]",
    "½": "1/2", "¼": "1/4", "¾": "3/4", "‘’": "'", "“”„": '"', "…": "...", "✓": "v", "ß": "ss",
}  # fmt: skip
"""Characters -> how they are written in ASCII; Unicode decomposes the others."""
_SPELLING = {character: text for group, text in SPELLINGS.items() for character in group} | {
    "∗": "*"
}


def spell(character: str) -> str:
    """Return a character in ASCII."""
    if character in _SPELLING:
        return _SPELLING[character]
    if "\u2500" <= character <= "\u259f":  # lines and blocks of tables
        names = unicodedata.name(character)
        return "#" if "BLOCK" in names else "-" if names.endswith(("HORIZONTAL",)) else "|"
    name = unicodedata.name(character, "")
    if name.startswith("GREEK"):
        letter = name.split(" WITH ")[0].split()[-1].lower().replace("lamda", "lambda")
        return letter.capitalize() if "CAPITAL" in name else letter
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    if plain or unicodedata.category(character).startswith("M"):
        return plain  # a letter without its accents, or an accent
    letter = unicodedata.category(character)[0] in "LNC"
    return character.encode("ascii", "backslashreplace").decode() if letter else "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(spell, error.object[error.start : error.end])), error.end


codecs.register_error(REPLACE, _replace)


def prepare_streams() -> None:
    """Let the streams replace what they cannot write.

    Raises:
        UserError: stdout is closed, or the working folder was deleted.
    """
    if sys.stderr is None:
        sys.stderr = open(os.open(os.devnull, os.O_WRONLY), "w")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # not a file: a notebook, a test
            stream.reconfigure(errors=REPLACE)  # type: ignore[union-attr]
    if sys.stdout is None:
        # The next file that is opened would be stdout, and would get what is printed.
        raise UserError("stdout is closed; send it to a file or to /dev/null")
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        raise UserError("the working folder was deleted; change to another folder") from None


def echo(text: object = "", *, err: bool = False) -> None:
    """Write a line to stdout, or to stderr."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{text}\n")
    stream.flush()


def stdout_error(*, failed: bool = False) -> OSError | None:
    """Return why stdout cannot be written, or None; what it holds is then dropped.

    `failed`: a write to a stream failed, which may have dropped what was to be written; a byte is
    written to find out whether it was stdout.
    """
    try:
        sys.stdout.flush()
        if failed:
            os.write(sys.stdout.fileno(), b"\n")
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, sys.stdout.fileno())  # or Python would try again at its end
            os.close(devnull)
        return error
    return None
