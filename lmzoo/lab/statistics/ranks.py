r"""Ranks, and intervals of the ranks of the true means by pairwise comparisons.

    rank ∈ [1 + #{q: better than p},  P − #{q: worse than p}]

"Better" and "worse" are t-tests of the two means, with Holm's correction over the P − 1 comparisons
of the point: the interval of each point holds its true rank with the given probability, whatever
the means, also if many are equal. A bootstrap of ranks does not: its intervals are too narrow where
points are close.

The variance of a point has the posterior of `noise.py`; the t-test has the mean of 1/v, and the
degrees of freedom 2 E[1/v]²/Var[1/v], which are exact for a scaled inverse χ².

Mogstad, Romano, Shaikh and Wilhelm 2024 (Review of Economic Studies 91:476; arXiv:2011.08779).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmzoo.lab.statistics.contrasts import holm, pairs_pay
from lmzoo.lab.statistics.intervals import LEVEL, Array, mean_and_error
from lmzoo.lab.statistics.noise import rounding_variance, seed_noise, without_seed_effects


def rank_intervals(
    losses: ArrayLike,
    tuning_sd: ArrayLike = 0.0,
    level: float = LEVEL,
    family: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Return the lowest and highest plausible rank of each point; rank 1 has the least loss.

    A point with a diverged run ranks below all points without one.

    Args:
        losses: (P, S) in nats; NaN for a run that is missing, infinity for one that diverged.
        tuning_sd: standard deviation in nats of the loss over repetitions of the tuning, (P,).
        level: coverage of the interval of each point.
        family: the points that share their noise, bool (P,); None: all.

    Returns:
        Low and high ranks, (P,) each; NaN for points with fewer than two finite losses.
    """
    x = np.asarray(losses, np.float64)
    finite = np.isfinite(x).sum(1)
    diverged: NDArray[np.bool_] = np.asarray(np.isposinf(x).any(1))
    ranked = finite > 0
    x = np.where(np.isfinite(x), x, np.nan)
    sharing = np.ones(len(x), bool) if family is None else np.asarray(family, bool)
    share: Array | float = 1.0
    rounding = rounding_variance(x)
    first = np.full(len(x), sharing.argmax() if len(x) else 0)
    if pairs_pay(x, first, sharing):
        x, share = without_seed_effects(x, sharing)
    noise = seed_noise(x, sharing, rounding, share)
    _, mean, _ = mean_and_error(x)
    tau = np.broadcast_to(np.asarray(tuning_sd, np.float64), len(x))
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = (noise.weight / noise.variance).sum(1)
        spread = (noise.weight / noise.variance**2).sum(1) - precision**2
        shared = np.isinf(noise.freedom) & (spread > 1e-9 * precision**2)
        freedom = np.where(shared, 2 * precision**2 / spread, noise.freedom)
        of_seeds = 1 / precision / noise.seeds
        unknown = of_seeds**2 / freedom
    low, high = np.full((2, len(x)), np.nan)
    for point in map(int, np.flatnonzero(finite > 1)):
        same = ranked & (diverged == diverged[point])
        variance = of_seeds + of_seeds[point]
        difference = mean - mean[point]
        with np.errstate(divide="ignore", invalid="ignore"):
            total = variance + tau**2 + tau[point] ** 2
            nu = np.minimum(total**2 / (unknown + unknown[point]), 1e6)
            p = 2 * special.stdtr(nu, -np.abs(difference) / np.sqrt(total))
        p[point] = np.nan
        sure = holm(np.where(same, p, np.nan)) < 1 - level
        better = np.where(same, sure & (difference < 0), ranked & ~diverged)
        worse = np.where(same, sure & (difference > 0), ranked & diverged)
        low[point] = 1 + better.sum()
        high[point] = ranked.sum() - worse.sum()
    return low, high
