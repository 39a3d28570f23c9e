"""The verdicts on the confirm runs that have ended so far.

They are those of a ranking of the same runs (`lab/study/comparison.py`). They change as runs end,
so that a sweep is never stopped because of them; `--until-decided` accounts for that.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmzoo.lab.study.comparison import comparison
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.point_planner import PointPlanner

REFERENCE = "reference"


class SoFar(NamedTuple):
    """What is known of a point."""

    verdict: str
    """One of `VERDICTS`, or reference; "" while fewer than two seeds have ended."""
    difference: str
    """δ̂ and its interval in the unit of the metric; "" if there is none."""


def so_far(planner: Planner) -> dict[PointPlanner, SoFar]:
    """Return what is known of each point that is compared with the reference."""
    reference = planner.reference
    found = {reference: SoFar(REFERENCE, "")}
    facts = {p: own for p, own in _facts(planner.points).items() if own}
    if reference not in facts:
        return found
    points, given = comparison(facts, reference, planner.looks, planner.study.margin)
    for i, point in enumerate(points):
        known = not math.isnan(given.low[i])
        sign = planner.study.sign
        low, high = sorted((sign * given.low[i], sign * given.high[i]))
        text = f"{sign * given.mean[i]:+.3f} [{low:+.3f}, {high:+.3f}]" if known else ""
        if point is not reference:
            found[point] = SoFar(str(given.verdict[i]), text)
    return found


def _facts(points: Sequence[PointPlanner]) -> dict[PointPlanner, Mapping[str, Any]]:
    """Return the facts about the points' models; each call computes those of one at most."""
    facts: dict[PointPlanner, Mapping[str, Any]] = {}
    computed = False
    for point in (p for p in points if p.confirm_runs):
        facts[point] = point.point.known_facts()
        if not facts[point] and not computed:
            facts[point], computed = point.point.facts(), True
    return facts
