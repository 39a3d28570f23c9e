r"""Ranks, and intervals of the ranks of the true means by pairwise comparisons.

    rank ∈ [1 + #{q: better than p},  P − #{q: worse than p}]

"Better" and "worse" are pairwise tests of `contrasts.py`, with Holm's correction over the P − 1
comparisons of the point: the interval of each point holds its true rank with the given probability,
whatever the means, also if many are equal. A bootstrap of ranks does not: its intervals are too
narrow where points are close.

A test integrates over the variances v_p and v_r of both points, which takes minutes for a thousand
points. Bounds of p decide most tests (`_clear`), and only the others are computed. Let q_u be a
quantile of v_p with P(v_p ≥ q_u) ≥ u, q'_u that of v_r, n the common seeds, τ² = τ_p² + τ_r²:

    p ≥ u · P(|N(0, max(q_u, q'_u)/n + τ²)| > |δ̂|)
    p ≥ (2u − 1) · P(|N(0, (q_u + q'_u)/n + τ²)| > |δ̂|)
    p ≤ P(v_p > q_ε) + P(v_r > q'_ε) + P(|N(0, (q_ε + q'_ε)/n + τ²)| > |δ̂|)

Mogstad, Romano, Shaikh and Wilhelm 2024 (Review of Economic Studies 91:476; arXiv:2011.08779).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmzoo.lab.statistics.contrasts import contrasts, holm
from lmzoo.lab.statistics.intervals import LEVEL, Array
from lmzoo.lab.statistics.noise import Noise, seed_noise

SHARES = (0.95, 0.8, 0.5, 0.25)
"""Probabilities u of the quantiles that bound a tail from below."""


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
    tau = np.broadcast_to(np.asarray(tuning_sd, np.float64), len(x))
    clear = _clear(x, tau, noise, 1 - level)
    for point in map(int, np.flatnonzero(finite > 1)):
        same = ranked & (diverged == diverged[point])
        p, mean = clear(point)
        read = np.isnan(p)
        read[point] = True
        rows = np.flatnonzero(read)
        own = None if noise is None else noise._replace(
            weight=noise.weight[rows], outlier=noise.outlier[rows]
        )  # fmt: skip
        sharing = None if family is None else np.asarray(family, bool)[rows]
        at = int(np.flatnonzero(rows == point)[0])
        with_point = contrasts(x[rows], at, tau[rows], family=sharing, noise=own)
        p[rows], mean[rows] = with_point.p, with_point.mean
        exact = np.zeros(len(x), bool)
        exact[rows] = with_point.exact
        sure = (exact & same) | (holm(np.where(same, p, np.nan)) < 1 - level)
        better = np.where(same, sure & (mean < 0), ranked & ~diverged)
        worse = np.where(same, sure & (mean > 0), ranked & diverged)
        low[point] = 1 + better.sum()
        high[point] = ranked.sum() - worse.sum()
    return low, high


def _clear(
    x: Array, tau: Array, noise: Noise | None, error: float
) -> Callable[[int], tuple[Array, Array]]:
    """Return a function that gives p of all points against one, and the differences of the means.

    p is 1 where it is at least `error`, and 0 where it is less than `error` over the number of
    points; elsewhere, and where seeds differ, it is NaN.
    """
    nothing = np.full(len(x), np.nan)
    if noise is None:
        return lambda point: (nothing.copy(), nothing.copy())
    known = ~np.isnan(x)
    n = known.sum(1)
    mean = np.where(known, x, 0.0).sum(1) / np.maximum(n, 1)
    some, rare = n > 1, error / len(x) / 8
    own = np.einsum("ptk,t->pk", noise.weight[some], noise.model)
    above = own[:, ::-1].cumsum(1)[:, ::-1]  # P(v ≥ each variance)
    quantile = np.full((len(SHARES), len(x)), np.nan)
    for row, share in zip(quantile, SHARES, strict=True):
        row[some] = noise.variance[(above >= share).sum(1) - 1]
    most, beyond = nothing.copy(), nothing.copy()
    last = np.minimum((above > rare).sum(1), above.shape[1] - 1)
    most[some] = noise.variance[last - 1]
    beyond[some] = np.take_along_axis(above, last[:, None], 1)[:, 0]

    def normal_tail(size: Array, variance: Array) -> Array:
        return 2 * special.ndtr(-size / np.sqrt(variance))

    def bounds(point: int) -> tuple[Array, Array]:
        size, tuning = np.abs(mean - mean[point]), tau**2 + tau[point] ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            least = [
                share * normal_tail(size, np.maximum(q, q[point]) / n + tuning)
                for share, q in zip(SHARES, quantile, strict=True)
            ]
            least += [
                (2 * share - 1) * normal_tail(size, (q + q[point]) / n + tuning)
                for share, q in zip(SHARES, quantile, strict=True)
            ]
            highest = normal_tail(size, (most + most[point]) / n + tuning)
        highest += beyond + beyond[point]
        p = nothing.copy()
        p[np.max(least, 0) >= error] = 1.0
        p[highest < error / len(x)] = 0.0
        p[(known != known[point]).any(1) | (quantile[0] <= 0) | (quantile[0][point] <= 0)] = np.nan
        return p, mean - mean[point]

    return bounds


def ranks(values: Array) -> NDArray[np.int64]:
    """Return ranks along the last axis: one more than the number of lesser values."""
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    least = np.broadcast_to(np.arange(1, values.shape[-1] + 1), order.shape).copy()
    least[..., 1:][ordered[..., 1:] == ordered[..., :-1]] = 0  # ties take the rank of the first
    result = np.empty_like(order)
    np.put_along_axis(result, order, np.maximum.accumulate(least, axis=-1), axis=-1)
    return result
