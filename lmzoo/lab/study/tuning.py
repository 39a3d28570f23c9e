"""The tuning of the points that search the same space.

The points share the start design (`designs.py`) and a fit:

1. Each point trains the start design. With ASHA, the default, every run waits at the first rung.
   When all points are there, a setting continues if it is in the best 1/η of its point, as ASHA
   does, or in the best `KEEP` of the fit to all points (`lmzoo/lab/statistics/responses.py`). So no
   rung removes what a point's own measurements favour, or what the points have in common.
2. When all points have trained the start design, the sampler, one of Optuna's, suggests the other
   settings. It gets the losses of the fit. If one field is searched and the best setting is the
   first or last one tried, the first suggestion is a setting beyond it. If that field is a choice,
   its values that were not tried come first.
3. When these have ended, some points are measured again: those with the largest expected loss by a
   wrong choice train the chosen setting and its challenger with a new seed, which they share.
   A point whose best setting is the first or last one tried trains one beyond it.
4. The fit to all runs chooses, and says how much loss the choice may add.

A decision is made when all runs that it needs have ended or reached an epoch. So it does not depend
on the order of execution, on deaths or on restarts. A failed run is missing: the decision waits
until the run succeeds, or fails again for the same reason, in another sweep or on another machine.

The losses of a count model, which is fitted in one epoch, have no noise: the least one is chosen.
"""

from collections.abc import Sequence

import numpy as np

from lmzoo.base.search_space import Choice
from lmzoo.lab.statistics.responses import Responses, fit_responses
from lmzoo.lab.statistics.ties import settled
from lmzoo.lab.study.designs import beyond, coordinates, spread
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.point_planner import PointPlanner
from lmzoo.lab.study.search import KEEP

ELSEWHERE, WITH_CHOICES = 16, 32
"""Most settings of several ranges among which the best one may be, and their number where a field
is a choice, each option of which has an optimum of its own."""
AGAIN = 0.15
"""Share of the points whose two best settings are measured again."""


class SharedTuning:
    """Decides for `points`, which search the same space from the same start design."""

    def __init__(self, points: Sequence[PointPlanner]) -> None:
        self.points = points
        self._steps = [
            (lambda point: point.at_rung, self._pass_rung),
            (lambda point: point.design_ended, self._end_design),
            (lambda point: point.tuned, self._measure_again),
            (lambda point: point.tuned, self._choose),
        ]
        self._waits = 0
        """Points before the first one for which the next step waits."""

    def advance(self) -> tuple[bool, list[PlannedRun]]:
        """Make the next decision if it is due; return if it was, and the runs that were pruned."""
        if not self._steps:
            return False, []
        ready, decide = self._steps[0]
        while self._waits < len(self.points):
            if not ready(self.points[self._waits]):
                return False, []
            self._waits += 1
        self._waits = 0
        del self._steps[0]
        return True, decide() or []

    def leave_out_failed(self) -> bool:
        """Leave out the points of which every run failed; return whether there are such and others.

        The next sweep tries them again. A point of which some runs failed is waited for: its
        results would change what is chosen for the others.
        """
        others = [point for point in self.points if not point.failed]
        left_out = 0 < len(others) < len(self.points)
        if left_out:
            self.points, self._waits = others, 0
        return left_out

    def _pass_rung(self) -> list[PlannedRun]:
        """Continue the best settings of each point; prune and return the others."""
        if not any(point.rung for point in self.points):
            return []
        losses = np.array([point.losses_at_rung() for point in self.points])
        kept = np.array([point.favours() for point in self.points])
        finite = np.isfinite(losses).any(1)
        if finite.any():
            x = coordinates(self.points[0].space, self.points[0].design)
            order = fit_responses(losses[finite], x).order[:, : int(KEEP * len(x))]
            kept[np.flatnonzero(finite)[:, None], order] = True
        pruned = [
            point.pass_rung({*np.flatnonzero(own).tolist()})
            for point, own in zip(self.points, kept, strict=True)
        ]
        return [run for runs in pruned for run in runs]

    def _end_design(self) -> None:
        """Give the sampler of each point the losses of the fit."""
        for point, fit, row in self._fitted():
            new = None
            if len(point.space) == 1:
                new = beyond(point.space, point.settings, point.settings[fit.best[row]])
            point.end_design(fit.mean[row].tolist(), new)
        for point in self.points:
            if not np.isfinite(point.losses()).any():
                point.end_design([], None)

    def _measure_again(self) -> None:
        """Plan runs of the settings between which the choice is the least sure."""
        fitted = [] if self.points[0].point.closed_form else self._fitted()
        fitted.sort(key=lambda found: -found[1].regret[found[2]])
        for place, (point, fit, row) in enumerate(fitted):
            best, challenger = fit.best[row], fit.challenger[row]
            runs = [(point.settings[i], 1) for i in (best, challenger)]
            if place >= AGAIN * len(fitted) or best == challenger or not fit.regret[row]:
                runs = []
            if new := beyond(point.space, point.settings, point.settings[best]):
                runs.append((new, 0))
            point.measure_again(runs)

    def _choose(self) -> None:
        """Choose the setting of each point that has a finished run."""
        for point, fit, row in self._fitted():
            if point.point.closed_form:
                point.choose(int(np.nanargmin(settled(point.losses()))), 0.0)
            else:
                point.choose(int(fit.best[row]), float(fit.tuning_sd[row]))

    def _fitted(self) -> list[tuple[PointPlanner, Responses, int]]:
        """Return the points that have a finished run, the fit to them, and the row of each."""
        losses = {p: own for p in self.points if np.isfinite(own := p.losses()).any()}
        if not losses:
            return []
        shape = len(losses), max(map(len, losses.values()))
        (y, early), seeds, x = np.full((2, *shape), np.nan), np.zeros(shape, np.int64), []
        for row, (point, own) in enumerate(losses.items()):
            y[row, : len(own)], seeds[row, : len(own)] = own, point.repeats
            padded = [*point.settings, *point.settings[:1] * (shape[1] - len(own))]
            x.append(coordinates(point.space, padded))
            if point.first_rung:
                early[row, : len(own)] = point.losses_at_rung()
        design, space = len(self.points[0].design), self.points[0].space
        elsewhere = None
        if len(space) > 1:
            size = max(1, min(ELSEWHERE, self.points[0].samples - 1))
            size = WITH_CHOICES if any(isinstance(b, Choice) for b in space.values()) else size
            elsewhere = coordinates(space, spread(space, size, 0))
        fit = fit_responses(
            y, np.array(x), seeds=seeds, early=early, elsewhere=elsewhere, shared=design
        )
        return [(point, fit, row) for row, point in enumerate(losses)]
