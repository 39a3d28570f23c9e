"""The comparison of the points of a study by the runs that have ended, and what it asks for.

`lab/statistics/compared.py` gives the verdicts; the tables call it with the same losses, family
and looks. `study.json` keeps the looks, so that a study that is run again with more seeds has spent
what it has spent.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from lmzoo.lab.statistics.compared import Compared, Look, compared, looks, read_looks, spend
from lmzoo.lab.statistics.contrasts import unfair
from lmzoo.lab.study.point_planner import PointPlanner
from lmzoo.lab.study.study import Study

Facts = Mapping[PointPlanner, Mapping[str, Any]]
"""The facts about the model of each point that is known: its score, whether it leaks."""


def plan_looks(
    study: Study, before: Mapping[str, Any], reference: PointPlanner, contrasts: int
) -> tuple[Look, ...]:
    """Return the looks of a study: those made before, and those of its number of seeds.

    `before` is the content of `study.json` before, {} for a new study; a look at which the runs of
    the reference have not ended was not made. `contrasts`, k, decides how many seeds the reference
    has at the looks to come.
    """
    made: tuple[Look, ...] = ()
    if before:
        ended = sum(bool(run.status) for run in reference.confirm_runs[: study.seeds])
        known = read_looks(before.get("looks"), before["budget"]["seeds"])
        made = tuple(takewhile(lambda look: not ended < look.seeds <= study.seeds, known))
    most = max(study.max_seeds, study.seeds)
    return spend(looks(study.seeds, most), made, contrasts, study.nearest)


def comparison(
    points: Facts,
    reference: PointPlanner,
    study_looks: Sequence[Look],
    margin: float,
    *,
    waits: bool = False,
    nearest: int = 0,
) -> tuple[list[PointPlanner], Compared]:
    """Return the points with the reference's kind of score, and their comparison.

    `waits`: a look that needs runs which have not ended decides nothing; `nearest`: how many points
    get the seeds of a further look, 0 for all.
    """
    score = points[reference]["score"]
    own = [p for p, facts in points.items() if facts["score"] == score and p.confirm_runs]
    losses = np.full((len(own), max(len(p.confirm_runs) for p in own)), math.nan)
    for row, point in zip(losses, own, strict=True):
        row[: len(point.confirm_runs)] = [_loss(run) for run in point.confirm_runs]
    honest = np.array([not points[p]["leaks"] and not p.point.baseline for p in own])
    at, names = own.index(reference), [p.point.architecture for p in own]
    rivals = unfair(names, [p.is_tuned for p in own], at)
    return own, compared(
        losses, at, family=honest & ~rivals, silent=honest & rivals,
        tuning_sd=[point.tuning_sd for point in own], looks=study_looks, margin=margin,
        ended=[len(p.confirm_runs) for p in own] if waits else None, nearest=nearest,
    )  # fmt: skip


def plan_more_seeds(
    study: Study, points: Sequence[PointPlanner], reference_id: str, study_looks: Sequence[Look]
) -> bool:
    """Plan the confirm runs that the losses ask for; return whether there are any.

    All planned runs have ended.
    """
    reference = next((p for p in points if p.point.id == reference_id), None)
    if reference is None or not reference.confirm_runs:
        return False
    facts = {point: point.point.facts() for point in points}
    own, found = comparison(
        facts, reference, study_looks, study.margin, waits=True, nearest=study.nearest
    )
    planned = [
        point.plan_confirm_runs(point.best_setting or {}, int(count))
        for point, count in zip(own, found.seeds, strict=True)
    ]
    return any(planned)


def _loss(run: Any) -> float:
    """Return the test loss: infinite if the run diverged, NaN if it failed or has not ended."""
    if run.status == "diverged":
        return math.inf
    return math.nan if run.test_loss is None else run.test_loss
