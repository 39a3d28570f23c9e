r"""How many seeds show a difference: planning, before anything is trained.

    Var(n)  = (v_p + v_r)/n + τ_p² + τ_r²                    v: `noise.py`, τ: the tuning's sd
    power   = P(|T_ν(δ/√Var(n))| > t_{1−α/2k, ν})            noncentral t; k contrasts
    ν       = (n − 1)√(m − 1), if m points share their noise; else n − 1 (paired), 2(n − 1)

The least n whose power reaches the target is the plan. v_p + v_r is the median of what a pilot says
of it: the expectation, which is larger, plans too many seeds more often than too few. Its quantiles
give the least and the most seeds.

The root is measured (`docs/how/plan.md`): m points that vary equally would give (n − 1)(m − 1), but
the verdicts do not know that they do. With this ν, simulated verdicts need 4 % more seeds.
"""

from bisect import bisect_left
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmzoo.lab.statistics.compared import ERROR, MOST_SEEDS, POWER
from lmzoo.lab.statistics.contrasts import Contrasts, contrasts
from lmzoo.lab.statistics.intervals import Array
from lmzoo.lab.statistics.noise import LEAST_POINTS

RANGE = (0.1, 0.9)
"""The quantiles of a pilot's variance that give the least and the most seeds."""


class Plan(NamedTuple):
    """The seeds that each contrast needs, (P,).

    NaN where no number up to `MOST_SEEDS` is enough, or the pilot has fewer than two seeds; 2 for a
    difference without noise.
    """

    seeds: Array
    least: Array
    """With the 10 % quantile of the variance that the pilot leaves possible."""
    most: Array
    sd: Array
    """Of a contrast's difference of one seed."""


def planned_seeds(
    losses: ArrayLike,
    reference: int,
    effect: float,
    power: float = POWER,
    *,
    family: ArrayLike | None = None,
    tuning_sd: ArrayLike = 0.0,
    paired: bool = True,
    count: int | None = None,
) -> Plan:
    """Return the seeds that each contrast needs.

    Args:
        losses: the pilot, (P, S), as in `compared`.
        reference: index of the reference.
        effect: δ, the difference to be shown, in the unit of the losses.
        power: probability that a difference of this size is shown.
        family: the contrasts of the planned study, bool (P,); None: all.
        tuning_sd: standard deviation of the loss over repetitions of the tuning, (P,).
        paired: whether the columns are seeds that all points share.
        count: k, the number of contrasts of the new study; None: those of the pilot.
    """
    x = np.asarray(losses, np.float64)
    asked = np.ones(len(x), bool) if family is None else np.array(family, bool)
    asked[reference] = False
    sharing = asked | (np.arange(len(x)) == reference)
    c = contrasts(x, reference, tuning_sd, family=sharing, paired=paired)
    k = max(1, int(asked.sum()) if count is None else count)
    noise = _noise_quantiles(c)
    result = np.full((3, len(x)), np.nan)
    for i in np.flatnonzero(asked & ~np.isnan(noise[0])):
        worth = 1.0 if paired else 2.0
        if np.isnan(c.freedom[i]) and k + 1 >= LEAST_POINTS:
            worth = max(worth, k**0.5)
        error = ERROR / 2 / k
        result[:, i] = [
            _least(effect, float(v), float(c.tuning[i]), worth, error, power) for v in noise[:, i]
        ]
    one_seed = np.sqrt(np.maximum(noise[1], 0.0))
    least, seeds, most = result
    return Plan(seeds, least, most, np.where(asked, one_seed, np.nan))


def _least(
    effect: float, noise: float, tuning: float, worth: float, error: float, power: float
) -> float:
    """Return the least n that shows an effect with this power; NaN above `MOST_SEEDS`."""

    def is_shown(n: int) -> bool:
        ratio = effect / max(noise / n + tuning, 1e-300) ** 0.5
        critical = special.stdtrit((n - 1) * worth, 1 - error)
        if ratio > 30:  # the noncentral t is then hard to compute, and certain
            return ratio > critical
        return 1 - special.nctdtr((n - 1) * worth, ratio, critical) >= power

    numbers = range(2, MOST_SEEDS + 1)
    place = bisect_left(numbers, True, key=is_shown)  # noqa: FBT003
    return numbers[place] if place < len(numbers) else np.nan


def _noise_quantiles(c: Contrasts) -> Array:
    """Return quantiles of v_p + v_r, (3, P): of the posterior, or s² ν / χ²_ν."""
    quantiles = np.array((RANGE[0], 0.5, RANGE[1]))
    with np.errstate(invalid="ignore"):
        result = c.noise * c.freedom / special.chdtri(c.freedom, quantiles[:, None])
        of_one = (c.sd**2 - c.tuning[:, None]) * c.seeds[:, None]
    for i in np.flatnonzero(np.isnan(c.freedom) & (c.noise > 0)):
        order = np.argsort(of_one[i])
        weight = c.weight[i][order]
        middle = np.cumsum(weight) - weight / 2
        logs = np.log(np.maximum(of_one[i][order], 1e-300))
        result[:, i] = np.exp(np.interp(quantiles, middle, logs))
    return np.where(c.noise > 0, result, c.noise)
