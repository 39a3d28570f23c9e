"""The tuning of the points that search the same space: they share the start design and a fit.

1. Each point trains the start design. With the pruner `response`, every run waits at the rung, a
   sixth of the epochs. When all points are there, the responses (`lmzoo/statistics/responses.py`)
   are fitted to the losses at the rung. In each point the best `KEEP` of the settings continue.
2. When all points have trained the start design, the sampler may propose further settings.
3. When all settings of all points have ended, the responses are fitted to the final losses. They
   choose the setting of each point and say how much the choice varies between repetitions. Pruned
   runs count as missing. A point that has further settings has a fit of its own.

A decision is made when all runs that it needs have reached an epoch. So it does not depend on the
order of execution, on deaths or on restarts.
"""

import math
from collections.abc import Sequence

import numpy as np

from lmzoo.statistics.responses import fit_responses
from lmzoo.study.design import coordinates
from lmzoo.study.planned_run import PlannedRun
from lmzoo.study.point_planner import PointPlanner
from lmzoo.study.pruners import KEEP


class SharedTuning:
    """Decides for `points`, which search the same space from the same start design."""

    def __init__(self, points: Sequence[PointPlanner]) -> None:
        self.points = points
        self._passed_rung = self._designed = self._chosen = False

    def advance(self) -> tuple[bool, list[PlannedRun]]:
        """Make the decisions that are due.

        Returns:
            Whether there was one, and the runs that were pruned.
        """
        advanced, pruned = False, list[PlannedRun]()
        if not self._passed_rung and all(point.at_rung for point in self.points):
            pruned = self._pass_rung()
            self._passed_rung = advanced = True
        if self._passed_rung and not self._designed and all(p.design_ended for p in self.points):
            self._end_design()
            self._designed = advanced = True
        if self._designed and not self._chosen and all(p.tuned for p in self.points):
            self._choose()
            self._chosen = advanced = True
        return advanced, pruned

    def _pass_rung(self) -> list[PlannedRun]:
        """Continue the best settings of each point; prune and return the others."""
        if not any(point.rung for point in self.points):
            return []
        losses = np.array([point.losses_at_rung() for point in self.points])
        finite = np.isfinite(losses).any(1)
        kept = [set[int]() for _ in self.points]
        if finite.any():
            x = coordinates(self.points[0].space, self.points[0].design)
            order = fit_responses(losses[finite], x).order
            count = math.ceil(KEEP * len(x))
            for p, best in zip(np.flatnonzero(finite), order, strict=True):
                kept[p] = {int(i) for i in best[:count]}
        pruned = [p.pass_rung(own) for p, own in zip(self.points, kept, strict=True)]
        return [run for runs in pruned for run in runs]

    def _end_design(self) -> None:
        """Give each point the results of the others, moved so that the best losses are equal."""
        losses = [point.losses() for point in self.points]
        least = [min((x for x in own if math.isfinite(x)), default=math.inf) for own in losses]
        for p, point in enumerate(self.points):
            others = [
                (setting, loss - least[q] + least[p])
                for q, own in enumerate(losses)
                if q != p and math.isfinite(least[p])
                for setting, loss in zip(point.design, own, strict=True)
                if math.isfinite(loss)
            ]
            point.end_design(others)

    def _choose(self) -> None:
        """Choose the setting of each point that has a finished run."""
        together = [p for p in self.points if len(p.settings) == len(p.design)]
        alone = [[p] for p in self.points if len(p.settings) > len(p.design)]
        for points in [together, *alone]:
            points = [p for p in points if np.isfinite(p.losses()).any()]
            if points:
                losses = np.array([point.losses() for point in points])
                x = coordinates(points[0].space, points[0].settings)
                fit = fit_responses(losses, x)
                for point, best, sd in zip(points, fit.best, fit.tuning_sd, strict=True):
                    point.choose(int(best), float(sd))
