"""What programs report: numbers, and JSON objects in lines.

A writer that is killed leaves a line that was cut, which is skipped. Lines of our own have a check,
so that a damaged one is not taken for another.
"""

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmzoo.base.errors import writing

LARGEST = 1e100
"""The square of a larger metric can be infinite."""


def number(value: Any) -> float:
    """Return a metric; NaN and infinity are those of a diverged run.

    Raises:
        ValueError: It is no number, or too large.
    """
    if isinstance(value, bool):
        raise ValueError("a truth value")
    try:
        result = float(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if LARGEST < abs(result) < math.inf:
        raise ValueError("too large")
    return result


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of lines that are JSON."""
    for line in text.split("\n"):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X].*?(?:\x07|\x1b\\|$)|[ -/]*[0-~])", re.DOTALL
)
"""Escape sequences of terminals: colours, titles, links."""


def read_objects(file: Path, keys: frozenset[str]) -> tuple[list[dict[str, Any]], int]:
    """Return the objects of a file that have these keys and their check, and the other lines.

    A line that was cut at the end of the file counts as none of them. Files of earlier versions
    have no checks.
    """
    if not file.exists():
        return [], 0
    lines = file.read_bytes().decode(errors="replace").split("\n")
    rows: list[dict[str, Any]] = []
    damaged = 0
    for i, line in enumerate(lines):
        row = next(objects(line), {})
        check = row.pop("check", None)
        if row.keys() == keys and check in (None, _check(row)):
            rows.append(row)
        elif line.strip() and i < len(lines) - 1:
            damaged += 1
    return rows, damaged


def append_object(file: Path, row: dict[str, Any]) -> None:
    """Add an object with a check, in a line of its own; a line that was cut goes."""
    with writing(file), file.open("ab+") as lines:
        lines.seek(0)
        whole, end, torn = lines.read().rpartition(b"\n")
        if torn and next(objects(torn.decode(errors="replace")), None) is None:
            lines.truncate(len(whole) + len(end))
            torn = b""
        text = ("\n" if torn else "") + json.dumps({**row, "check": _check(row)}) + "\n"
        lines.write(text.encode())
        lines.flush()
        os.fsync(lines.fileno())


def _check(row: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]


def write_checked(file: Path, value: dict[str, Any]) -> None:
    """Replace a file by an object with a check, whole or not at all."""
    new = file.with_suffix(".new")
    with writing(file), new.open("w") as text:
        text.write(json.dumps({**value, "check": _check(value)}))
        text.flush()
        os.fsync(text.fileno())
    with writing(file):
        new.replace(file)


def read_checked(file: Path) -> dict[str, Any] | None:
    """Return the object of such a file; None if it is damaged."""
    value = next(objects(file.read_bytes().decode(errors="replace")), None)
    if value is None:
        return None
    check = value.pop("check", None)
    return value if check in (None, _check(value)) else None
