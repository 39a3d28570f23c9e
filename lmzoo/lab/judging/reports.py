"""What programs report: numbers, and JSON objects in lines.

A writer that is killed leaves a torn line, which is skipped.
"""

import contextlib
import json
import math
import os
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


def read_objects(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file; none if it does not exist."""
    if file.exists():
        yield from objects(file.read_text())


def append_object(file: Path, row: dict[str, Any]) -> None:
    """Add an object in a line of its own, after a torn one too."""
    with writing(file), file.open("a+") as lines:
        lines.seek(max(0, lines.seek(0, os.SEEK_END) - 1))
        torn = lines.read(1) not in ("", "\n")
        lines.write("\n" * torn + json.dumps(row) + "\n")
