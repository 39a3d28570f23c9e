"""The tuning of the points that search the same space: the settings that they try, and when.

**The start design** are the settings that all points try first. One field: the middles of `CELLS`
equal cells of its range, or of a quarter of the samples if that is more; equal in the logarithm if
the range says so. Several fields: as many points of a scrambled Sobol sequence (Owen 1998, J.
Complexity 14). A default setting inside the ranges replaces the nearest setting. The settings are
in the order of their distance from the default one. The last one is left out, and as many others as
leave the sampler at least one of the samples.

**The points share** the start design and a fit:

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

**When a setting may start**, and with which earlier settings it is compared, does not depend on
timing. With `parallel` = w, setting i starts when

    the settings 0 to i-w have ended or reached the first rung,
    the settings 0 to i-2w have ended or reached the second rung, and so on,
    and, after the last of L - 1 rungs, the settings 0 to i-Lw have ended,

and a setting after the start design starts when the start design has ended, too. With the pruner
`asha` the whole start design starts at once (`point_planner.py`).

The pruner compares run i up to the k-th rung with the settings 0 to i-kw, whose losses there are
known; the sampler suggests setting i from the results of the settings 0 to i-Lw and of the start
design. So a long run does not delay the start of the next one.
"""

import bisect
import math
from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmzoo.base.search_space import Choice, IntRange, Range, near_bound
from lmzoo.lab.statistics.responses import Responses, fit_responses
from lmzoo.lab.statistics.ties import settled
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.search import KEEP, rungs
from lmzoo.lab.study.study import Study

if TYPE_CHECKING:
    from lmzoo.lab.study.point_planner import PointPlanner

ELSEWHERE, WITH_CHOICES = 16, 32
"""Most settings of several ranges among which the best one may be, and their number where a field
is a choice, each option of which has an optimum of its own."""
CELLS = 5
"""Cells of the range of a study with at most 23 samples."""

Setting = dict[str, Any]
Space = Mapping[str, Range]


def start_design(space: Space, default: Setting, samples: int, seed: int) -> list[Setting]:
    """Return different settings, fewer than `samples` if those are two or more."""
    size = max(CELLS, samples // 4)
    settings = spread(space, size, seed)
    if all(_contains(bounds, default[path]) for path, bounds in space.items()):
        centre = coordinates(space, [default])
        distances = ((coordinates(space, settings) - centre) ** 2).sum(1)
        order = np.argsort(distances, kind="stable")
        settings = [default, *(settings[i] for i in order[1:])]
    unique = [setting for i, setting in enumerate(settings) if setting not in settings[:i]]
    return unique[: max(1, min(size, samples) - 1)]


def spread(space: Space, size: int, seed: int) -> list[Setting]:
    """Return settings that fill the space."""
    if len(space) == 1:
        shares = ((np.arange(size) + 0.5) / size)[:, None]
    else:
        from scipy.stats import qmc  # takes half a second to import

        sequence = qmc.Sobol(len(space), scramble=True, rng=np.random.default_rng(seed))
        shares = sequence.random_base2((size - 1).bit_length())[:size]
    return [
        {path: _value(bounds, x) for (path, bounds), x in zip(space.items(), row, strict=True)}
        for row in shares
    ]


def beyond(space: Space, tried: Sequence[Setting], best: Setting) -> Setting | None:
    """Return a setting beyond the best one; None if it is not the first or last one tried.

    A field whose best value is the least or largest of those tried moves on by the distance of the
    next value, at most to the bound of its range.
    """
    moved = dict(best)
    for path in edges(space, tried, best):
        bounds = space[path]
        shares = sorted({_share(bounds, setting[path]) for setting in tried})
        at = _share(bounds, best[path])
        next_share = shares[1] if at <= shares[0] else shares[-2]
        if not near_bound(best[path], bounds):
            moved[path] = _value(bounds, min(max(2 * at - next_share, 0.0), 1.0))
    return None if moved == best or moved in tried else moved


def untried(space: Space, tried: Sequence[Setting]) -> Setting | None:
    """Return a setting that was not tried, if the only field is a choice; None if all were."""
    settings = [
        {path: value} for path, b in space.items() if isinstance(b, Choice) for value in b.values
    ]
    return next((s for s in settings if len(space) == 1 and s not in tried), None)


def edges(space: Space, tried: Sequence[Setting], best: Setting) -> list[str]:
    """Return the fields whose best value is the first or the last of those tried."""
    found = []
    for path in (path for path, bounds in space.items() if not isinstance(bounds, Choice)):
        values = {setting[path] for setting in tried}
        if len(values) > 1 and best[path] in (min(values), max(values)):
            found.append(path)
    return found


def coordinates(space: Space, settings: Sequence[Setting]) -> NDArray[np.float64]:
    """Return the settings as points: a range is [−1, 1], each value of a choice is an axis."""
    columns: list[list[float]] = []
    for path, bounds in space.items():
        values = [setting[path] for setting in settings]
        if isinstance(bounds, Choice):
            columns += [[float(value == option) for value in values] for option in bounds.values]
        else:
            columns.append([2 * _share(bounds, value) - 1 for value in values])
    return np.array(columns).T


def _value(bounds: Range, share: float) -> Any:
    """Return the value at a share of a range; a choice is divided into equal parts."""
    if isinstance(bounds, Choice):
        return bounds.values[int(share * len(bounds.values))]
    if bounds.log:
        value = bounds.low * (bounds.high / bounds.low) ** float(share)
    else:
        value = bounds.low + (bounds.high - bounds.low) * float(share)
    return round(value) if isinstance(bounds, IntRange) else float(f"{value:.4g}")


def _share(bounds: Range, value: float) -> float:
    assert not isinstance(bounds, Choice)
    scale = log if bounds.log else float
    return (scale(value) - scale(bounds.low)) / (scale(bounds.high) - scale(bounds.low))


def _contains(bounds: Range, value: Any) -> bool:
    if isinstance(bounds, Choice):
        return value in bounds.values
    return isinstance(value, int | float) and bounds.low <= value <= bounds.high


AGAIN = 0.15
"""Share of the points whose two best settings are measured again."""


class SharedTuning:
    """Decides for `points`, which search the same space from the same start design."""

    def __init__(self, points: "Sequence[PointPlanner]") -> None:
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

    def _fitted(self) -> "list[tuple[PointPlanner, Responses, int]]":
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


class StartRules:
    """The rules for one point, whose start design has `design` settings."""

    def __init__(self, study: Study, design: int) -> None:
        self._parallel, self._design = study.settings_in_parallel, design
        self._levels = [*rungs(study), math.inf]
        """Epochs that settings must reach, in this order; infinity is the end."""
        self._reached = [0] * len(self._levels)
        """Number of settings before the first one that has not reached the level."""

    @property
    def lag(self) -> int:
        """Lw: setting i is suggested from the results of the settings 0 to i-Lw."""
        return self._parallel * len(self._levels)

    def startable(self, runs: Sequence[PlannedRun], most: int) -> int:
        """Return how many of the first `most` settings may start.

        `runs` are those of the settings that have started, all of which count.
        """
        for k, level in enumerate(self._levels):
            while (n := self._reached[k]) < len(runs):
                if not runs[n].status and runs[n].last_epoch < level:
                    break
                self._reached[k] += 1
        starts = (n + self._parallel * (k + 1) for k, n in enumerate(self._reached))
        return max(len(runs), min(most, *starts))

    def compared(self, index: int, epoch: int) -> int:
        """Return the number of first settings with which setting `index` is compared."""
        level = bisect.bisect_left(self._levels, epoch)
        known = max(0, index - self._parallel * (level + 1) + 1)
        return known if index < self._design else max(known, self._design)
