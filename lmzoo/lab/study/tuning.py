"""The tuning of the points that search the same space.

The points share the start design (`designs.py`) and a fit:

1. Each point trains the start design. With halving, the default, every run waits at the first rung.
   When all points are there, a setting continues if it is in the best 1/η of its point, as ASHA
   does, or in the best `KEEP` of the fit to all points (`lmzoo/lab/statistics/responses.py`). So no
   rung removes what a point's own measurements favour, or what the points have in common.
2. When all points have trained the start design, the sampler, one of Optuna's, suggests the other
   settings. It gets the losses of the fit. If one field is searched and the best setting is the
   first or last one tried, the first suggestion is a setting beyond it. If that field is a choice,
   its values that were not tried come first. After the first suggestion each has a training seed of
   its own: close settings with one seed share its luck, which would look like the response.
3. When these have ended, some points are measured again: those with the largest expected loss by a
   wrong choice train the chosen setting and its challenger with a new seed, which they share.
   A point whose best setting is the first or last one tried trains one beyond it.
4. The fit to all runs chooses, and says how much loss the choice may add.

A decision is made when all runs that it needs have ended or reached an epoch. So it does not depend
on the order of execution, on deaths or on restarts. A failed run is missing: the decision waits
until the run succeeds, or fails again for the same reason, in another sweep or on another machine.

The losses of a count model, which is fitted in one epoch, have no noise: the least one is chosen.
"""

from collections.abc import Collection, Sequence

import numpy as np

from lmzoo.base.search_space import Choice
from lmzoo.lab.statistics.intervals import Array
from lmzoo.lab.statistics.responses import Responses, fit_responses
from lmzoo.lab.statistics.ties import settled
from lmzoo.lab.study.designs import beyond, coordinates, spread
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.point_planner import PointPlanner
from lmzoo.lab.study.search import KEEP
from lmzoo.lab.study.study import Setting

ELSEWHERE = 16
"""Most settings of several ranges among which the best one may be."""
WITH_CHOICES = 32
"""Their number where a field is a choice, each option of which has an optimum of its own."""
AGAIN = 0.15
"""Share of the points whose two best settings are measured again."""


class SharedTuning:
    """Decides for `points`, which search the same space from the same start design."""

    def __init__(self, points: Sequence[PointPlanner]):
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
        # Each decision is made once; a restart makes it again from the store.
        del self._steps[0]
        return True, decide() or []

    def tune_further(self, points: Collection[PointPlanner], most: int) -> bool:
        """Try further settings of these points, up to `most` each; return whether there are any."""
        if self._steps:  # the last ones have not ended: one of them failed
            return False
        further = [point.tune_further(most) for point in self.points if point in points]
        if not any(further):
            return False
        # The fit reads all points again, but only these choose.
        self._steps = [(lambda point: point.tuned, self._choose)]
        return True

    def leave_out_failed(self) -> bool:
        """Leave out the points of which every run failed; return whether there are such and others.

        The next sweep tries them again. A point of which some runs failed is waited for: its
        results would change what is chosen for the others.
        """
        others = [point for point in self.points if not point.failed]
        # Where all have failed, there is nobody to go on for.
        left_out = 0 < len(others) < len(self.points)
        if left_out:
            self.points = others
            self._waits = 0
        return left_out

    def _pass_rung(self) -> list[PlannedRun]:
        """Continue the best settings of each point; prune and return the others."""
        if not any(point.rung for point in self.points):
            return []
        losses = np.array([point.losses_at_rung() for point in self.points])
        kept = np.array([point.favours() for point in self.points])
        has_losses = np.isfinite(losses).any(1)
        if has_losses.any():
            first = self.points[0]
            settings = coordinates(first.space, first.design)
            fit = fit_responses(losses[has_losses], settings)
            count = int(KEEP * len(settings))
            rows = np.flatnonzero(has_losses)[:, None]
            # What ASHA favours continues, too, so that the fit only adds.
            kept[rows, fit.order[:, :count]] = True
        pruned = list[PlannedRun]()
        for point, kept_of_point in zip(self.points, kept, strict=True):
            indices = np.flatnonzero(kept_of_point).tolist()
            pruned += point.pass_rung(set(indices))
        return pruned

    def _end_design(self):
        """Give the sampler of each point the losses of the fit."""
        for point, fit, row in self._fitted():
            new = None
            if len(point.space) == 1:
                best = point.settings[fit.best[row]]
                new = beyond(point.space, point.settings, best)
            losses = fit.mean[row].tolist()
            point.end_design(losses, new)
        for point in self.points:
            # Without a loss there is no fit, but the sampler may find a setting that trains.
            if not _has_loss(point):
                point.end_design([], None)

    def _measure_again(self):
        """Plan runs of the settings between which the choice is the least sure."""
        if self.points[0].point.closed_form:
            return
        fitted = self._fitted()
        # The points that may lose most by a wrong choice come first.
        fitted.sort(key=lambda found: -found[1].regret[found[2]])
        for place, (point, fit, row) in enumerate(fitted):
            best = fit.best[row]
            challenger = fit.challenger[row]
            chosen = point.settings[best]
            is_first = place < AGAIN * len(fitted)
            runs = list[tuple[Setting, int]]()
            if is_first and best != challenger and fit.regret[row]:
                repeat = max(point.repeats) + 1
                for setting in (chosen, point.settings[challenger]):
                    runs.append((setting, repeat))
            new = beyond(point.space, point.settings, chosen)
            if new:
                runs.append((new, 0))
            point.measure_again(runs)

    def _choose(self):
        """Choose the setting of each point that has a finished run."""
        for point, fit, row in self._fitted():
            if point.is_chosen:
                continue
            if point.point.closed_form:
                # A table of counts has no noise that a fit could remove.
                least = np.nanargmin(settled(point.losses()))
                point.choose(int(least), 0.0)
            else:
                best = int(fit.best[row])
                point.choose(best, float(fit.tuning_sd[row]))

    def _fitted(self) -> list[tuple[PointPlanner, Responses, int]]:
        """Return the points that have a finished run, the fit to them, and the row of each."""
        points = list(filter(_has_loss, self.points))
        if not points:
            return []
        most = max(len(point.settings) for point in points)
        shape = (2, len(points), most)
        losses, early = np.full(shape, np.nan)
        seeds = np.zeros(losses.shape, np.int64)
        settings = []
        for row, point in enumerate(points):
            count = len(point.settings)
            losses[row, :count] = point.losses()
            seeds[row, :count] = point.repeats
            # A point with fewer runs than others is filled up with a setting without a loss.
            padding = point.settings[:1] * (most - count)
            padded = point.settings + padding
            settings.append(coordinates(point.space, padded))
            if point.first_rung:
                early[row, :count] = point.losses_at_rung()
        first = self.points[0]
        fit = fit_responses(
            losses,
            np.array(settings),
            seeds=seeds,
            early=early,
            elsewhere=_elsewhere(first),
            shared=len(first.design),
        )
        return [(point, fit, row) for row, point in enumerate(points)]


def _has_loss(point: PointPlanner) -> bool:
    return bool(np.isfinite(point.losses()).any())


def _elsewhere(point: PointPlanner) -> Array | None:
    """Return settings of the space of several fields among which the best one may be."""
    space = point.space
    if len(space) == 1:
        return None
    size = max(1, min(ELSEWHERE, point.samples - 1))
    if any(isinstance(bounds, Choice) for bounds in space.values()):
        size = WITH_CHOICES
    settings = spread(space, size, 0)
    return coordinates(space, settings)
