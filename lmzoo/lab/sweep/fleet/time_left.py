"""The time that a sweep still needs, as an interval.

The stages of a study follow each other: train to the rung, train the kept settings to their end,
train further settings, confirm. Workers W share the R runs of a shape in packs of n:

    n      = min(⌈R K / W⌉, R, limit)         K: the number of shapes in the stage
    c(n)   = a + b n                          seconds of an epoch of a pack, `Pace`
    shared = Σ R e c(n)/n / W                 e: epochs left of each run
    chain  = max e c(1)
    low    = max(Σ shared, Σ chain)           stages of different points overlap
    high   = Σ (shared + (1 − 1/W) chain)     each stage waits for its last run

For one stage these are the bounds of list scheduling. `work_left` reads the work from a planner.

Graham 1969 (SIAM J. Appl. Math. 17:416).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.point_planner import PointPlanner
from lmzoo.lab.study.pruners import KEEP
from lmzoo.lab.sweep.fleet.pace import Interval, Pace
from lmzoo.lab.sweep.fleet.packing import Packer

NARROW = 1.35
"""Ratio of the ends of an interval below which it is shown as one number."""
LONG, WORTH = 300.0, 0.8
"""Seconds left, and the share of them with twice as many workers, from which these are named."""


@dataclass(frozen=True)
class Work:
    """Runs of one shape in one stage of a study."""

    stage: int
    shape: str
    runs: int
    epochs: float
    """Epochs left of each run, the mean."""
    limit: int = 1
    """Maximum number of pack members."""
    least: float = 1.0
    """Share of the epochs that is trained at least; pruning saves the others."""


def time_left(work: Iterable[Work], pace: Pace, workers: int) -> Interval | None:
    """Return bounds of the seconds left; None if nothing has been measured, or nobody works."""
    stages: dict[int, list[Work]] = {}
    for part in work:
        if part.runs and part.epochs > 0:
            stages.setdefault(part.stage, []).append(part)
    if not stages:
        return Interval(0.0, 0.0)
    if not pace.known or not workers:
        return None
    bounds = [_stage(parts, pace, workers) for _, parts in sorted(stages.items())]
    low = max(sum(shared.low for shared, _ in bounds), sum(chain.low for _, chain in bounds))
    alone = 1 - 1 / workers
    return Interval(low, sum(shared.high + alone * chain.high for shared, chain in bounds))


def gain(work: Sequence[Work], pace: Pace, workers: int) -> str:
    """Return what twice as many workers would buy: `, 5 min with 8 workers`; "" if it is little."""
    now, more = (time_left(work, pace, count) for count in (workers, 2 * workers))
    if not now or not more or now.middle < LONG or more.middle > WORTH * now.middle:
        return ""
    return f", {duration(more.middle)} with {2 * workers} workers"


def describe(left: Interval) -> str:
    """Return `about 12 min left`, or `10 to 20 min left` while the interval is wide."""
    if left.high <= NARROW * left.low or left.high < 5:
        return f"about {duration(left.middle)} left"
    low, high = duration(left.low), duration(left.high)
    if low == high:
        return f"about {high} left"
    if low.split()[1] == high.split()[1]:
        low = low.split()[0]
    return f"{low} to {high} left"


def duration(seconds: float) -> str:
    """Format a time as `45 s`, `12 min` or `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def elapsed(seconds: float) -> str:
    """Format the time since the start: as `duration`, with seconds below ten minutes."""
    if not 90 <= seconds < 600:
        return duration(seconds)
    return f"{seconds // 60:.0f} min {seconds % 60 // 1:.0f} s"


def _stage(parts: Sequence[Work], pace: Pace, workers: int) -> tuple[Interval, Interval]:
    """Return (work / workers, longest chain) of a stage, in seconds."""
    runs: Mapping[str, int] = _runs_by_shape(parts)
    shared_low = shared_high = chain_low = chain_high = 0.0
    for part in parts:
        count = runs[part.shape]
        size = min(part.limit, count, math.ceil(count * len(runs) / workers))
        low, high = (part.epochs * c for c in pace.seconds(part.shape, size))
        low *= part.least
        packs = part.runs / size
        shared_low, shared_high = shared_low + packs * low, shared_high + packs * high
        low, high = (part.epochs * c for c in pace.seconds(part.shape, 1))
        chain_low, chain_high = max(chain_low, part.least * low), max(chain_high, high)
    shared = Interval(shared_low / workers, shared_high / workers)
    return shared, Interval(chain_low, chain_high)


def _runs_by_shape(parts: Sequence[Work]) -> dict[str, int]:
    runs: dict[str, int] = {}
    for part in parts:
        runs[part.shape] = runs.get(part.shape, 0) + part.runs
    return runs


TO_RUNG, TUNE, SEARCH, CONFIRM = range(4)
"""The stages, in order."""
PRUNED = 0.4
"""Share of its epochs that a run of the search trains at least, where a pruner may stop it."""


def work_left(planner: Planner, packer: Packer, memory: int = 0) -> Iterator[Work]:
    """Yield the work of each stage of each point; a run of two points counts once.

    `memory` is that of a worker's GPU in bytes; 0 is a CPU.
    """
    seen: set[str] = set()
    for point in planner.planners:
        runs = [
            run
            for run in (*point.tune_runs, *point.confirm_runs)
            if not run.status and run.id not in seen
        ]
        seen.update(run.id for run in runs)
        yield from _point_work(point, runs, packer, memory)


def _point_work(
    point: PointPlanner, runs: list[PlannedRun], packer: Packer, memory: int
) -> Iterator[Work]:
    study = point.study
    first = next(iter([*point.confirm_runs, *point.tune_runs]), None)
    if first is None or not first.id:
        return
    shape, limit = packer.pack_key(first), max(1, packer.max_members(first, memory))
    budget = 1 if point.point.closed_form else study.epochs

    def work(stage: int, lengths: list[float], least: float = 1.0) -> Work:
        mean = sum(lengths) / max(1, len(lengths))
        return Work(stage, shape, len(lengths), mean, limit, least)

    def left(run: PlannedRun, until: int = 0) -> float:
        return max(0.0, (until or budget) - run.trained)

    tune = [run for run in runs if run.stage == "tune"]
    design = [run for run in tune if run.index < len(point.design)]
    searched = [left(run) for run in tune if run.index >= len(point.design)]
    least = 1.0 if study.pruner == "none" else PRUNED
    if point.rung:
        yield work(TO_RUNG, [left(run, point.rung) for run in design])
        kept = min(len(design), max(1, int(KEEP * len(point.design))))
        yield work(TUNE, [budget - float(point.rung)] * kept)
    else:
        others = study.pruner not in ("none", "asha")
        yield work(TUNE, [left(run) for run in design], least if others else 1.0)
    later = point.samples - max(len(point.tune_runs), len(point.design))
    yield work(SEARCH, [*searched, *[float(budget)] * max(0, later)], least)
    confirm = [left(run) for run in runs if run.stage == "confirm"]
    if point.best_setting is None:
        confirm += [float(budget)] * study.seeds
    yield work(CONFIRM, confirm)


def epochs_done(planner: Planner) -> int:
    """Return the epochs that the runs have trained; a run of two points counts once."""
    epochs: dict[str, int] = {}
    for point in planner.planners:
        for run in (*point.tune_runs, *point.confirm_runs):
            epochs[run.id] = min(run.trained, 1) if point.point.closed_form else run.trained
    return sum(epochs.values())
