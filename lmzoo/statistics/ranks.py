r"""Ranks, and intervals of the ranks of the true means by pairwise comparisons.

    rank ∈ [1 + #{q: better than p},  P − #{q: worse than p}]

"Better" and "worse" are pairwise tests of `contrasts.py`, with Holm's correction over the P − 1
comparisons of the point: the interval of each point holds its true rank with the given probability,
whatever the means, also if many are equal. A bootstrap of ranks does not: its intervals are too
narrow where points are close.

Mogstad, Romano, Shaikh and Wilhelm 2024 (Review of Economic Studies 91:476; arXiv:2011.08779).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmzoo.statistics.contrasts import contrasts, holm
from lmzoo.statistics.intervals import LEVEL, Array
from lmzoo.statistics.noise import seed_noise


def rank_intervals(
    losses: ArrayLike,
    tuning_sd: ArrayLike = 0.0,
    level: float = LEVEL,
    family: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Return the lowest and highest plausible rank of each point; rank 1 has the least loss.

    A point with a diverged run ranks below all points without one. A pair with fewer than two
    common seeds is undecided.

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
    diverged = np.array(np.isposinf(x).any(1))
    ranked = np.array(finite > 0)
    noise, x = seed_noise(x, family), np.where(np.isposinf(x), np.nan, x)
    low, high = np.full((2, len(x)), np.nan)
    for point in map(int, np.flatnonzero(finite > 1)):
        with_point = contrasts(x, point, tuning_sd, family=family, noise=noise)
        same = ranked & (diverged == diverged[point])
        p = holm(np.where(same, with_point.p, np.nan))
        exact = same & with_point.exact
        sure = np.asarray(exact | (p < 1 - level))
        better = np.where(same, sure & (with_point.mean < 0), ranked & ~diverged)
        worse = np.where(same, sure & (with_point.mean > 0), ranked & diverged)
        low[point] = 1 + better.sum()
        high[point] = ranked.sum() - worse.sum()
    return low, high


def ranks(values: Array) -> NDArray[np.int64]:
    """Return ranks along the last axis: one more than the number of lesser values."""
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    least = np.broadcast_to(np.arange(1, values.shape[-1] + 1), order.shape).copy()
    least[..., 1:][ordered[..., 1:] == ordered[..., :-1]] = 0  # ties take the rank of the first
    result = np.empty_like(order)
    np.put_along_axis(result, order, np.maximum.accumulate(least, axis=-1), axis=-1)
    return result
