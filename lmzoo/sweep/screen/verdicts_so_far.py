"""The verdicts on the confirm runs that have ended so far.

They are those of a ranking of the same runs: the same contrasts and the same family. They change
as runs end, so that a sweep is never stopped because of them; `--until-decided` accounts for that.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmzoo.data.corpus import Corpus
from lmzoo.statistics.contrasts import contrasts
from lmzoo.statistics.verdicts import verdicts
from lmzoo.study.planned_run import PlannedRun
from lmzoo.study.point_planner import PointPlanner
from lmzoo.study.study import Study
from lmzoo.train.run_config import known_model_facts, model_facts

REFERENCE = "reference"


class SoFar(NamedTuple):
    """What is known of a point."""

    verdict: str
    """worse, better, equivalent, undecided, reference; "" while fewer than two seeds have ended."""
    difference: str
    """δ̂ and its interval in nats per token; "" if there is none."""


def so_far(
    study: Study, points: Sequence[PointPlanner], corpus: Corpus
) -> dict[PointPlanner, SoFar]:
    """Return what is known of each point that is compared with the reference."""
    reference = next((p for p in points if study.reference in p.point.labels), points[0])
    found = {reference: SoFar(REFERENCE, "")}
    facts = _facts(points, corpus)
    if not facts.get(reference):
        return found
    score = facts[reference]["score"]
    compared = [p for p, own in facts.items() if own and own["score"] == score]
    losses = np.full((len(compared), max(len(p.confirm_runs) for p in compared)), math.nan)
    for row, point in zip(losses, compared, strict=True):
        row[: len(point.confirm_runs)] = [_loss(run) for run in point.confirm_runs]
    sd = [point.tuning_sd for point in compared]
    differences = contrasts(losses, compared.index(reference), sd)
    asked = [p is not reference and not p.point.baseline for p in compared]
    family = [own and not facts[p]["leaks"] for own, p in zip(asked, compared, strict=True)]
    given = verdicts(differences, study.margin, family).verdict
    low, high = differences.low, differences.high
    for i, point in enumerate(compared):
        known = point is not reference and not math.isnan(low[i])
        text = f"{differences.mean[i]:+.3f} [{low[i]:+.3f}, {high[i]:+.3f}]" if known else ""
        if point is not reference:
            found[point] = SoFar(str(given[i]), text)
    return found


def _facts(points: Sequence[PointPlanner], corpus: Corpus) -> dict[PointPlanner, Mapping[str, Any]]:
    """Return the facts about the points' models; each call computes those of one at most."""
    configs = {p: p.confirm_runs[0].config for p in points if p.confirm_runs}
    facts: dict[PointPlanner, Mapping[str, Any]] = {}
    computed = False
    for point, config in configs.items():
        facts[point] = known_model_facts(config, corpus.task)
        if not facts[point] and not computed:
            facts[point], computed = model_facts(config, corpus.task), True
    return facts


def _loss(run: PlannedRun) -> float:
    """Return the test loss: infinite if the run diverged, NaN while it has not ended."""
    if run.status == "diverged":
        return math.inf
    return math.nan if run.test_loss is None else run.test_loss
