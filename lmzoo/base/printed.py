"""Numbers as programs print them: `nan`, `-inf` or `1.#QNAN`, which JSON and most patterns lack.

A time is printed by `duration` everywhere.
"""

import json
import re
from typing import Any

from lmzoo.base.errors import UserError

WORD = r"(?<![\w.])[+-]?(?:nan(?:\(\w*\))?|inf(?:inity)?|1\.#(?:[qs]nan|ind|inf)\w*)(?![\w.])"
NOT_FINITE = re.compile(WORD, re.IGNORECASE)
TOKEN = re.compile(rf'"(?:[^"\\]|\\.)*"|{WORD}', re.IGNORECASE)


def json_value(text: str, **options: Any) -> Any:
    """Return the value of JSON in which a number may be a word; else a `ValueError`."""
    try:
        return json.loads(text, **options)
    except ValueError:
        return json.loads(TOKEN.sub(_token, text), **options)


def _token(found: re.Match[str]) -> str:
    word = found[0].lower()
    if word.startswith('"'):
        return found[0]
    if "inf" not in word:
        return "NaN"
    if word.startswith("-"):
        return "-Infinity"
    return "Infinity"


def check_whole(text: str, start: int, end: int):
    """Raise a `UserError` if a place of a text is a part of a number: `1.5` of `-1.5e-05`."""
    taken = text[start:end]
    mark = "[.,]"
    if "." in taken:  # the comma of 1.5,2 is no decimal one
        mark = "[.]"
    # Both patterns match an empty text, too.
    before = re.search(r"((?<![\w)\]])-)?(\d+\.?)?$", text[max(0, start - 99) : start])
    after = re.compile(rf"(\d*({mark}\d+)*([eE][+-]?\d+)?)").match(text, end)
    whole = f"{before and before[0]}{taken}{after and after[0]}"
    if whole != taken and re.search(r"\d", taken):
        raise UserError(rf"the pattern takes {taken!r} of {whole!r}; take the number whole: (\S+)")


def with_digits(text: str) -> str:
    """Return a text of the same length, for patterns of digits: `loss 0.0` for `loss nan`."""
    return NOT_FINITE.sub(lambda found: f"0.{'':0<{len(found[0]) - 2}}", text)


def counted(number: int, noun: str) -> str:
    """Return `1 worker`, `2 workers`."""
    return f"{number:,} {noun}" + "s" * (number != 1)


def duration(seconds: float) -> str:
    """Format a time as `45 s`, `12 min` or `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"
