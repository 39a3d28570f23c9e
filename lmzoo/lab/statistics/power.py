r"""How many seeds show a difference: planning, before anything is trained.

    Var(n)  = v_p/n + v_r/n_r + τ_p² + τ_r²,  n_r = n√k     v: `noise.py`, τ: the tuning's sd
    power   = E P(|T_ν(δ/√Var(n))| > t_{1−α/2k, ν})          noncentral t; k contrasts
    ν       = (n − 1) max(2, √k); of pairs (n − 1) max(1, √k); √k from three contrasts on

The expectation is over the variances that the pilot leaves possible, so that the power is reached
on average. The least n is the plan; 10 % and 90 % quantiles of the variance give the least and the
most seeds, and `chance` is the probability that the plan has less than the power. A run that
diverges says nothing of the size: of n planned seeds, n(1 − q) count, where q is the share of
diverged runs of the pilot.

The root is measured (`docs/how/plan.md`): k contrasts that vary equally would give (n − 1)k, but
the verdicts do not know that they do. A quantile is that of v_p plus that of v_r.
"""

from bisect import bisect_left
from math import nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmzoo.lab.statistics.compared import ERROR, MOST_SEEDS, POWER, reference_seeds
from lmzoo.lab.statistics.contrasts import Contrasts, contrasts
from lmzoo.lab.statistics.draws import independent
from lmzoo.lab.statistics.intervals import Array
from lmzoo.lab.statistics.noise import LEAST_POINTS, members

QUANTILES = np.linspace(0.1, 0.9, 9)
"""Of a pilot's variance; the first and the last give the least and the most seeds."""


class Plan(NamedTuple):
    """The seeds that each contrast needs, (P,).

    NaN where no number up to `MOST_SEEDS` is enough, or the pilot has fewer than two seeds; 2 for a
    difference without noise.
    """

    seeds: Array
    least: Array
    """With the 10 % quantile of the variance that the pilot leaves possible."""
    most: Array
    """With the 90 % quantile."""
    sd: Array
    """Of a contrast's difference of one seed."""
    chance: Array
    """Probability that the planned seeds have less than the power."""


def planned_seeds(
    losses: ArrayLike,
    reference: int,
    effect: float,
    power: float = POWER,
    *,
    family: ArrayLike | None = None,
    tuning_sd: ArrayLike = 0.0,
    paired: bool | None = None,
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
        paired: as in `compared`.
        count: k, the number of contrasts of the new study; None: those of the pilot.
    """
    x = independent(losses)
    points = len(x)
    tested = members(family, points)
    tested[reference] = False
    # The pilot is judged as the study will be.
    sharing = tested | (np.arange(points) == reference)
    pilot = contrasts(x, reference, tuning_sd, family=sharing, paired=paired)
    k = count
    if k is None:
        k = int(tested.sum())
    k = max(1, k)
    # √k in the limit of many seeds.
    reference_share = reference_seeds(1000, k) / 1000
    worth = 2.0
    if pilot.paired:
        # Pairs need equal seeds.
        reference_share = 1.0
        worth = 1.0
    if k + 1 >= LEAST_POINTS:
        # Points that vary alike lend each other degrees of freedom.
        worth = max(worth, k**0.5)
    runs = (~np.isnan(x)).sum(1)
    diverged = np.isposinf(x).sum(1)
    kept = 1 - diverged / np.maximum(runs, 1)
    # A contrast has the runs of the arm that loses more.
    kept = np.minimum(kept, kept[reference])
    kept[kept == 0] = nan  # no run of the pilot has a size
    noise = _noise_quantiles(pilot, reference_share)
    seeds, least, most, chance = np.full((4, points), nan)
    is_known = ~np.isnan(noise[0] / kept)
    for point in np.flatnonzero(tested & is_known):
        tuning = float(pilot.tuning[point])
        shown = _Power(effect, tuning, worth, ERROR / 2 / k)
        of_point = noise[:, point]
        enough = shown.least(of_point, power)
        seeds[point] = enough
        least[point] = shown.least(of_point[:1], power)
        most[point] = shown.least(of_point[-1:], power)
        if not np.isnan(enough):
            # The pilot may have been lucky with its variance.
            reached = [shown.of(int(enough), value) for value in of_point]
            chance[point] = np.mean(np.array(reached) < power)
    usual = np.maximum(np.median(noise, 0), 0.0)
    sd = np.sqrt(usual)
    # A diverged run says nothing of the size: so many more are planned.
    return Plan(
        seeds=np.ceil(seeds / kept),
        least=np.ceil(least / kept),
        most=np.ceil(most / kept),
        sd=np.where(tested, sd, nan),
        chance=chance,
    )


class _Power(NamedTuple):
    """The power of one contrast."""

    effect: float
    tuning: float
    worth: float
    """Degrees of freedom of each seed after the first."""
    error: float

    def of(self, n: int, noise: float) -> float:
        """Return the probability that n seeds show the effect; 0 or 1 where it is certain."""
        variance = max(noise / n + self.tuning, 1e-300)
        ratio = self.effect / variance**0.5
        freedom = (n - 1) * self.worth
        critical = special.stdtrit(freedom, 1 - self.error)
        if ratio > 30:  # the noncentral t is then hard to compute, and certain
            return float(ratio > critical)
        return 1 - float(special.nctdtr(freedom, ratio, critical))

    def least(self, noise: Array, power: float) -> float:
        """Return the least n whose mean power is enough; NaN above `MOST_SEEDS`."""
        numbers = range(2, MOST_SEEDS + 1)

        def enough(n: int) -> bool:
            chances = [self.of(n, float(value)) for value in noise]
            return bool(np.mean(chances) >= power)

        place = bisect_left(numbers, True, key=enough)  # noqa: FBT003
        if place == len(numbers):
            return nan
        return numbers[place]


def _noise_quantiles(pilot: Contrasts, ratio: float) -> Array:
    """Return quantiles of v_p + v_r/ratio, (Q, P): of the posterior, or s² ν / χ²_ν.

    `ratio` is that of the numbers of seeds of the reference and of a point.
    """
    is_known = ~np.isnan(pilot.error)
    of_seeds = pilot.sd**2 - pilot.tuning[:, None]
    of_point = of_seeds - pilot.of_reference[:, None]
    variance = of_point * pilot.seeds[:, None]
    quantiles = np.full((len(QUANTILES), len(is_known)), nan)
    for point in np.flatnonzero(is_known):
        is_possible = pilot.weight[point] > 0
        possible = variance[point][is_possible]
        weight = pilot.weight[point][is_possible]
        if len(possible) > 1:
            # Each possible variance stands in the middle of its weight.
            middle = np.cumsum(weight) - weight / 2
            logs = np.log(np.maximum(possible, 1e-300))
            quantile = np.interp(QUANTILES, middle, logs)
            own = np.exp(quantile)
        else:
            # A point with its own variance, which few seeds estimate.
            own = possible * _scaled(pilot.seeds[point] - 1)
        freedom = pilot.reference_seeds[point] - 1
        of_reference = pilot.reference_noise[point] * _scaled(freedom) / ratio
        quantiles[:, point] = own + of_reference
    return quantiles


def _scaled(freedom: float) -> Array:
    """Return the quantiles of ν/χ²_ν."""
    return freedom / special.chdtri(freedom, QUANTILES)
