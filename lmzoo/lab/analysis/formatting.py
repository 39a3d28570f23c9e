"""Format numbers for tables: "—" for a missing number, a true minus sign."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lmzoo.lab.store.labels import SCORE_KINDS

MISSING = "—"


def join_labels(labels: Iterable[str]) -> str:
    """Return labels in a line; those that have a comma are in quotes."""
    return ", ".join(repr(label) if "," in label else label for label in labels)


def table_title(row: Mapping[str, Any]) -> str:
    """Return the title of the table of a row: kind of score, corpus, sizes and entropy floor."""
    kind = SCORE_KINDS.get(row["score"], str(row["score"]))
    if row["vocab"] is None:
        return kind
    corpus = json.loads(row["corpus"])
    name = corpus.pop("name", "corpus")
    options = ", ".join(f"{key}={value}" for key, value in corpus.items() if value is not None)
    floor = f"; entropy floor {row['floor']:.4f}" if row["floor"] is not None else ""
    sizes = f"vocabulary of {row['vocab']:,}, sequences of up to {row['length']} tokens"
    return f"{kind}; {name}{f' ({options})' if options else ''}; {sizes}{floor}"


def format_mean(value: float | None, low: float | None, high: float | None, form: str) -> str:
    """Return "mean ±half", or "mean [low, high]" where the halves differ.

    An exact mean has no interval.
    """
    if value is None:
        return MISSING
    shown = format_number(value, form)
    if low is None or high is None:
        return f"{shown} ±{MISSING}"
    if low == value == high:
        return shown
    halves = [format_number(half, form.lstrip("+")) for half in (value - low, high - value)]
    if halves[0] == halves[1]:
        return f"{shown} ±{halves[1]}"
    return f"{shown} [{format_number(low, form)}, {format_number(high, form)}]"


def format_p(p: float | None) -> str:
    """Return a p-value with three decimals, or "<0.001"."""
    return "<0.001" if p is not None and p < 0.001 else format_number(p, ".3f")


def format_probability(value: float | None) -> str:
    """Return a probability. A value that is not exactly 0 or 1 is never rounded to them."""
    if value is None or value in (0, 1):
        return format_number(value, ".0f")
    return ">0.99" if value > 0.99 else "<0.01" if value < 0.01 else f"{value:.2f}"


def format_number(value: int | float | None, form: str) -> str:
    """Return the number in this format, "—" for None."""
    return MISSING if value is None else f"{value:{form}}".replace("-", "−")


def format_duration(seconds: float) -> str:
    """Return a time as "45 s", "12 min" or "3.4 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def format_value(value: Any) -> str:
    """Return the value of a config field; floats have three significant digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
