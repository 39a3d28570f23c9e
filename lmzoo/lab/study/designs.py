"""The settings that all points try first, others near them, and when a setting may start.

**The start design** are the settings that all points try first. One field: the middles of `CELLS`
equal cells of its range, or of a quarter of the samples if that is more; equal in the logarithm if
the range says so. Several fields: as many points of a scrambled Sobol sequence (Owen 1998, J.
Complexity 14). A default setting inside the ranges replaces the nearest setting. The settings are
in the order of their distance from the default one. The last one is left out, and as many others as
leave the sampler at least one of the samples.

**When a setting may start**, and with which earlier settings it is compared, does not depend on
timing. With `parallel` = w, setting i starts when

    the settings 0 to i-w have ended or reached the first rung,
    the settings 0 to i-2w have ended or reached the second rung, and so on,
    and, after the last of L - 1 rungs, the settings 0 to i-Lw have ended,

and a setting after the start design starts when the start design has ended, too. With the pruner
`halving` the whole start design starts at once (`point_planner.py`).

The pruner compares run i up to the k-th rung with the settings 0 to i-kw, whose losses there are
known; the sampler suggests setting i from the results of the settings 0 to i-Lw and of the start
design. So a long run does not delay the start of the next one.
"""

import bisect
import math
from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmzoo.base.search_space import Choice, IntRange, Range, near_bound
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.search import rungs
from lmzoo.lab.study.study import Setting, Space, Study

CELLS = 5
"""Cells of the range of a study with at most 23 samples."""


def start_design(space: Space, default: Setting, samples: int, seed: int) -> list[Setting]:
    """Return different settings, fewer than `samples` if those are two or more."""
    size = max(CELLS, samples // 4)
    settings = spread(space, size, seed)
    if all(_contains(bounds, default[path]) for path, bounds in space.items()):
        centre = coordinates(space, [default])
        away = coordinates(space, settings) - centre
        distances = (away**2).sum(1)
        order = np.argsort(distances, kind="stable")
        others = [settings[index] for index in order[1:]]
        # In the order of their distance from the default one, which replaces the nearest.
        settings = [default] + others
    unique = list[Setting]()
    for setting in settings:
        if setting not in unique:
            unique.append(setting)
    # The last one is left out, and the sampler gets at least one of the samples.
    count = min(size, samples) - 1
    return unique[: max(1, count)]


def spread(space: Space, size: int, seed: int) -> list[Setting]:
    """Return settings that fill the space."""
    if len(space) == 1:
        middles = np.arange(size) + 0.5
        shares = (middles / size)[:, None]
    else:
        from scipy.stats import qmc  # takes half a second to import

        rng = np.random.default_rng(seed)
        sequence = qmc.Sobol(len(space), scramble=True, rng=rng)
        # Sobol's points are balanced in powers of two.
        power = (size - 1).bit_length()
        shares = sequence.random_base2(power)[:size]
    return [
        {path: _value(space[path], share) for path, share in zip(space, row, strict=True)}
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
        best_share = _share(bounds, best[path])
        neighbour = shares[-2]
        if best_share <= shares[0]:
            neighbour = shares[1]
        # At the bound there is nothing beyond.
        if not near_bound(best[path], bounds):
            share = max(2 * best_share - neighbour, 0.0)
            moved[path] = _value(bounds, min(share, 1.0))
    if moved == best or moved in tried:
        return None
    return moved


def untried(space: Space, tried: Sequence[Setting]) -> Setting | None:
    """Return a setting that was not tried, if the only field is a choice; None if all were."""
    # Several fields have more combinations than samples.
    if len(space) > 1:
        return None
    for path, bounds in space.items():
        if isinstance(bounds, Choice):
            for value in bounds.values:
                if {path: value} not in tried:
                    return {path: value}
    return None


def edges(space: Space, tried: Sequence[Setting], best: Setting) -> list[str]:
    """Return the fields whose best value is the first or the last of those tried."""
    found = []
    for path, bounds in space.items():
        if isinstance(bounds, Choice):
            continue
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
            for option in bounds.values:
                columns.append([float(value == option) for value in values])
        else:
            # [−1, 1], as the priors of the fit expect.
            columns.append([2 * _share(bounds, value) - 1 for value in values])
    return np.array(columns).T


def _value(bounds: Range, share: float) -> Any:
    """Return the value at a share of a range; a choice is divided into equal parts."""
    if isinstance(bounds, Choice):
        place = int(share * len(bounds.values))
        return bounds.values[place]
    low = bounds.low
    high = bounds.high
    if bounds.log:
        value = low * (high / low) ** float(share)
    else:
        value = low + (high - low) * float(share)
    if isinstance(bounds, IntRange):
        return round(value)
    # Four digits are read easily, and are as good. They may lie beyond a bound that has more.
    rounded = float(f"{value:.4g}")
    return min(max(rounded, low), high)


def _share(bounds: Range, value: float) -> float:
    assert not isinstance(bounds, Choice)
    scale = float
    if bounds.log:
        scale = log
    low = scale(bounds.low)
    span = scale(bounds.high) - low
    return (scale(value) - low) / span


def _contains(bounds: Range, value: Any) -> bool:
    if isinstance(bounds, Choice):
        return value in bounds.values
    is_number = isinstance(value, int | float)
    return is_number and bounds.low <= value <= bounds.high


class StartRules:
    """The rules for one point, whose start design has `design` settings."""

    def __init__(self, study: Study, design: int):
        self._parallel = study.settings_in_parallel
        self._design = design
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
        starts = most
        for number, level in enumerate(self._levels):
            reached = self._reached[number]
            # From the first one that was not there at the last call: each run once.
            while reached < len(runs):
                run = runs[reached]
                if not run.status and run.last_epoch < level:
                    break
                reached += 1
            self._reached[number] = reached
            further = self._parallel * (number + 1)
            starts = min(starts, reached + further)
        return max(len(runs), starts)

    def compared(self, index: int, epoch: int) -> int:
        """Return the number of first settings with which setting `index` is compared."""
        # The rung at which it is compared decides how many others are there.
        level = bisect.bisect_left(self._levels, epoch)
        last = index - self._parallel * (level + 1)
        known = max(0, last + 1)
        if index < self._design:
            return known
        return max(known, self._design)
