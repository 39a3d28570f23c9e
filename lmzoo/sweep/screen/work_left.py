"""The work that a planner's study still has, by stage and shape, for `time_left.py`."""

from collections.abc import Iterator

from lmzoo.study.planned_run import PlannedRun
from lmzoo.study.planner import Planner
from lmzoo.study.point_planner import PointPlanner
from lmzoo.study.pruners import KEEP
from lmzoo.sweep.fleet.packing import Packer
from lmzoo.sweep.fleet.time_left import Work

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
