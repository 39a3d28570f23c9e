"""What programs report: numbers, and JSON objects in lines.

A writer that is killed leaves a line that was cut, which is skipped. Lines of our own have a check,
so that a damaged one is not taken for another.
"""

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from lmzoo.base.printed import json_value
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import LARGEST


def number(value: Any) -> float:
    """Return a metric, NaN or infinity of a diverged run; a `ValueError` if it is no number."""
    if isinstance(value, bool):
        raise ValueError("a truth value")
    try:
        result = float(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    is_word = not math.isinf(result) or isinstance(value, float) or "inf" in str(value).lower()
    if LARGEST < abs(result) < math.inf or not is_word or "_" in str(value):
        raise ValueError("too large, or 1_000, which Python reads as 1000")
    return result


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of lines that are JSON."""
    for line in text.split("\n"):
        with contextlib.suppress(ValueError, RecursionError):
            value = json_value(line)
            if isinstance(value, dict):
                yield value


ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X].*?(?:\x07|\x1b\\|$)|[ -/]*[0-~])", re.DOTALL
)
"""Escape sequences of terminals: colours, titles, links."""


def checked_line(row: dict[str, Any]) -> str:
    """Return an object with its check as a line of JSON."""
    return json.dumps({**row, "check": _check(row)})


def checked_object(line: str) -> dict[str, Any] | None:
    """Return the object of such a line; None if it is damaged. Earlier versions had no checks."""
    row = next(objects(line), None)
    check = row.pop("check", None) if row is not None else ""
    return row if row is not None and check in (None, _check(row)) else None


def read_objects(store: Store, name: str, keys: frozenset[str]) -> tuple[list[dict[str, Any]], int]:
    """Return the objects of a file with these keys, and the number of other lines.

    A line that was cut at the end of the file counts as none of them.
    """
    *lines, last = (store.read(name) or b"").decode(errors="replace").split("\n")
    rows = [checked_object(line) for line in (*lines, last)]
    good = [row for row in rows if row is not None and row.keys() == keys]
    damaged = sum(line.strip() != "" for line in lines) - len(good)
    return good, damaged + (rows[-1] in good)


def _check(row: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]
