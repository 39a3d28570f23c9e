"""Field -> the range it was searched in, over several points.

Points may search one field in different ranges: what is said of all of them takes the
smallest range that holds each. A study that an older version wrote keeps, of such ranges,
one point's only; so what was tried counts as well.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import Any

Range = Mapping[str, Any]
"""`low`, `high` and `log`, or `values`, as `study.json` has them."""


def ranges(
    study: Mapping[str, Any],
    settings: Iterable[Mapping[str, Any]] = (),
    labels: Collection[str] | None = None,
) -> dict[str, Range]:
    """The range of each searched field.

    Args:
        study: the content of `study.json`.
        settings: what was tried, field -> value.
        labels: of the points that are meant; None for all.
    """
    tried: dict[str, list[Any]] = {}
    for setting in settings:
        for name, value in setting.items():
            tried.setdefault(name, []).append(value)
    found = {name: reduce(_joined, each) for name, each in distinct(study, labels).items()}
    return found | {
        name: _holding(found.get(name, {"values": []}), values) for name, values in tried.items()
    }


def distinct(
    study: Mapping[str, Any], labels: Collection[str] | None = None
) -> dict[str, list[Range]]:
    """Field -> the ranges that points search it in, each once."""
    meant = [p for p in study["points"] if labels is None or p["label"] in labels]
    own = [point["search"] for point in meant if "search" in point]
    found: dict[str, list[Range]] = {}
    for search in own or [study["search"]]:
        for name, where in search.items():
            if where not in found.setdefault(name, []):
                found[name].append(where)
    return found


def _joined(one: Range, other: Range) -> Range:
    if "values" in one or "values" in other:
        return _holding({"values": one.get("values", ())}, other.get("values", ()))
    log = one.get("log", False) and other.get("log", False)
    return _holding({**one, "log": log}, (other["low"], other["high"]))


def _holding(where: Range, values: Iterable[Any]) -> Range:
    """The range with these values in it; one of numbers that is given others is a choice."""
    values = list(values)
    if "values" not in where and all(map(_is_number, values)):
        every = [where["low"], where["high"], *values]
        kind = float if any(isinstance(value, float) for value in every) else int
        return {**where, "low": kind(min(every)), "high": kind(max(every))}
    every = [*where.get("values", ()), *values]
    return {"values": [value for i, value in enumerate(every) if value not in every[:i]]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
