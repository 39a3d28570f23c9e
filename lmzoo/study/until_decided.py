"""More confirm seeds for the points whose difference from the reference is undecided.

When all planned runs have ended, `more_seeds` looks at the test losses and says how many seeds each
point needs (`lmzoo/statistics/sequential.py`). Tables compute the verdicts with the same function.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus
from lmzoo.statistics.sequential import looks, more_seeds
from lmzoo.study.point_planner import PointPlanner
from lmzoo.study.study import Study
from lmzoo.train.run_config import model_facts


def schedule(study: Study) -> tuple[int, ...]:
    """Return the numbers of seeds after which a study looks; () if it trains `seeds` only."""
    return looks(study.seeds, study.max_seeds) if study.max_seeds else ()


def plan_more_seeds(
    study: Study, points: Sequence[PointPlanner], corpus: Corpus, reference_id: str
) -> bool:
    """Plan the confirm runs that the losses so far ask for; return whether there are any.

    The points that are compared have the reference's kind of score and a confirm run that has
    ended; all their planned confirm runs have ended.
    """
    facts = [_facts(point, corpus) for point in points]
    reference = next((p for p in points if p.point.id == reference_id), None)
    if reference is None or not reference.confirm_runs:
        return False
    score = facts[points.index(reference)]["score"]
    compared = [
        (point, own)
        for point, own in zip(points, facts, strict=True)
        if point.confirm_runs and own["score"] == score
    ]
    rows = [[_loss(run) for run in point.confirm_runs] for point, _ in compared]
    losses = np.full((len(rows), max(map(len, rows))), math.nan)
    for row, own in zip(losses, rows, strict=True):
        row[: len(own)] = own
    needed = more_seeds(
        losses,
        [point for point, _ in compared].index(reference),
        schedule(study),
        study.margin,
        [point.tuning_sd for point, _ in compared],
        [not own["leaks"] and not point.point.baseline for point, own in compared],
        [len(own) for own in rows],
    ).seeds
    planned = [
        point.plan_confirm_runs(point.best_setting or {}, int(count))
        for (point, _), count in zip(compared, needed, strict=True)
    ]
    return any(planned)


def _facts(point: PointPlanner, corpus: Corpus) -> dict[str, Any]:
    return model_facts({"model": MODELS.dump(point.point.model)}, corpus.task)


def _loss(run: Any) -> float:
    """Return the test loss of a run that has ended: infinite if it diverged, NaN if it failed."""
    if run.status == "diverged":
        return math.inf
    return math.nan if run.test_loss is None else run.test_loss
