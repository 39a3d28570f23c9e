"""The table of points on the console: it fits the screen and keeps the order of the study.

The verdicts on the confirm runs that have ended so far are those of a ranking of the same runs
(`lab/study/comparison.py`). They change as runs end,
so that a sweep is never stopped because of them; `--until-decided` accounts for that.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from lmzoo.lab.statistics.compared import (
    BETTER,
    BETTER_OPEN,
    NEGLIGIBLE,
    UNDECIDED,
    WORSE,
    WORSE_OPEN,
)
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


UNIT = "nats/token"
"""Unit of the losses of rows of the zoo."""
WIDE = 110
"""Columns of a terminal from which the differences are shown, too."""
STYLES = {
    **{BETTER: "green", BETTER_OPEN: "green", NEGLIGIBLE: "cyan"},
    **{WORSE: "red", WORSE_OPEN: "red", UNDECIDED: "yellow"},
}
NUMBERS = ("done", "running", "pending", "pruned")


def point_table(
    points: Sequence[PointPlanner],
    known: Mapping[PointPlanner, SoFar],
    running: Collection[str],
    recent: Sequence[str],
    room: int,
    width: int,
) -> Table:
    """Return a table of at most `room` lines, the header included.

    Args:
        points: all points, in the order of the study.
        known: verdicts so far.
        running: identities of the runs in training.
        recent: labels of points, the one that changed last at the end; these are shown first.
        room: lines, at least 3.
        width: columns of the terminal.
    """
    wide = width >= WIDE
    unit = points[0].study.shown_unit
    others = [("so far", 10), *([(f"difference in {unit}", 25)] if wide else [])]
    numbers = (f"best {unit}" if wide else unit, *NUMBERS)
    taken = sum(max(len(name), least) + 1 for name, least in [*others, *((n, 0) for n in numbers)])
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    longest = max(10, width - taken)
    table.add_column("point", no_wrap=True, overflow="ellipsis", max_width=longest)
    for name, least in others:
        table.add_column(name, no_wrap=True, min_width=least)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    shown = choose(points, recent, room - 1)
    for point in shown:
        table.add_row(*_cells(point, known.get(point, SoFar("", "")), running, width))
    rest = [point for point in points if point not in shown]
    if rest:
        sums = Counter[str]()
        for point in rest:
            sums.update(counts(point, running))
        blank = [""] * (3 if wide else 2)
        shown_sums = [str(sums[name]) for name in NUMBERS]
        table.add_row(f"... {len(rest)} more", *blank, *shown_sums, style="dim")
    return table


def choose(
    points: Sequence[PointPlanner], recent: Sequence[str], room: int
) -> Sequence[PointPlanner]:
    """Return the points to show in `room` lines: the reference, those that changed last."""
    if len(points) <= room:
        return points
    order = {label: i for i, label in enumerate(recent)}
    study = points[0].study
    by_interest = sorted(
        points,
        key=lambda p: (study.reference not in p.point.labels, -order.get(p.point.label, -1)),
    )
    chosen = set(by_interest[: max(1, room - 1)])
    return [point for point in points if point in chosen]


def counts(point: PointPlanner, running: Collection[str]) -> dict[str, int]:
    """Return how many runs of a point are done, running, pending and pruned."""
    runs = point.tune_runs + point.confirm_runs
    pruned = sum(run.status == "pruned" for run in runs)
    done = sum(bool(run.status) for run in runs) - pruned
    trained = sum(not run.status and run.id in running for run in runs)
    later = max(0, point.samples - len(point.tune_runs))
    if point.best_setting is None:
        later += point.study.seeds
    pending = len(runs) + later - done - pruned - trained
    return dict(zip(NUMBERS, (done, trained, pending, pruned), strict=True))


def _cells(point: PointPlanner, known: SoFar, running: Collection[str], width: int) -> list[str]:
    losses = [
        run.best_loss for run in point.tune_runs + point.confirm_runs if run.best_loss is not None
    ]
    style = STYLES.get(known.verdict)
    verdict = f"[{style}]{known.verdict}[/]" if style else known.verdict
    number = counts(point, running)
    texts = [str(number[name]) if number[name] else "·" for name in NUMBERS]
    if number["running"]:
        texts[1] = f"[green]{texts[1]}[/]"
    difference = [known.difference.replace("[", r"\[")] if width >= WIDE else []
    label = point.point.display_label.replace("[", r"\[")
    best = f"{point.study.sign * min(losses):.4f}" if losses else ""
    return [label, verdict, *difference, best, *texts]
