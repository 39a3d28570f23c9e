"""The ranges in which the points of a study search their fields.

Points may search a field in different ranges. Their common range is the smallest range that
includes all of them. A study of an older version stores the range of one point only, so the tried
values extend the range as well.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import Any

Range = Mapping[str, Any]
"""`low`, `high` and `log`, or `values`, as in `study.json`."""


def search_ranges(
    study: Mapping[str, Any],
    settings: Iterable[Mapping[str, Any]] = (),
    labels: Collection[str] | None = None,
) -> dict[str, Range]:
    """Return the range of each searched field.

    Args:
        study: the content of `study.json`.
        settings: the tried settings, each field -> value.
        labels: labels of the points to include; None for all.
    """
    tried: dict[str, list[Any]] = {}
    for setting in settings:
        for name, value in setting.items():
            tried.setdefault(name, []).append(value)
    united = {
        name: reduce(_union, ranges) for name, ranges in distinct_ranges(study, labels).items()
    }
    return united | {
        name: _extend(united.get(name, {"values": []}), values) for name, values in tried.items()
    }


def distinct_ranges(
    study: Mapping[str, Any], labels: Collection[str] | None = None
) -> dict[str, list[Range]]:
    """Return field -> the different ranges in which points search it."""
    points = [p for p in study["points"] if labels is None or p["label"] in labels]
    own = [point["search"] for point in points if "search" in point]
    ranges: dict[str, list[Range]] = {}
    for search in own or [study["search"]]:
        for name, search_range in search.items():
            if search_range not in ranges.setdefault(name, []):
                ranges[name].append(search_range)
    return ranges


def is_number(value: Any) -> bool:
    """Return whether a value is an int or a float; a bool is not a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _union(first: Range, second: Range) -> Range:
    if "values" in first or "values" in second:
        return _extend({"values": first.get("values", ())}, second.get("values", ()))
    log = first.get("log", False) and second.get("log", False)
    return _extend({**first, "log": log}, (second["low"], second["high"]))


def _extend(search_range: Range, values: Iterable[Any]) -> Range:
    """Return the range extended to these values; other values turn numbers into a choice."""
    values = list(values)
    if "values" not in search_range and all(map(is_number, values)):
        every = [search_range["low"], search_range["high"], *values]
        kind = float if any(isinstance(value, float) for value in every) else int
        return {**search_range, "low": kind(min(every)), "high": kind(max(every))}
    every = [*search_range.get("values", ()), *values]
    return {"values": [value for i, value in enumerate(every) if value not in every[:i]]}
