r"""Intervals, paired tests and rank intervals for P points measured on the same S seeds.

    interval       m ± t_{.975, n-1} s / √n                        over the n seeds of a point
    difference     the same for d_s = x_s − r_s                    over the seeds both have
    p              P(|T_{n-1}| > |d̄| √n / s_d)                     paired t-test; NaN if s_d = 0
    better         P(T_{n-1} > d̄ √n / s_d)                         P(δ < 0) under a flat prior
    Holm           p'_(i) = max_{j ≤ i} min(1, (k − j + 1) p_(j))  over k tests
    rank interval  the 2.5 % and 97.5 % quantiles of a point's rank when seeds are drawn
                   with replacement, the same draw for every point

NaN marks a value that was not measured. One seed gives no interval (NaN). If all seeds give the
same number, as for a count model, the number is exact: both ends of the interval equal it and
there is no test.

A percentile bootstrap over few seeds is too narrow: with three seeds it separates two equal points
in one study of four. Therefore the distance of each resampled mean from the point's mean is
multiplied by √(n/(n−1)) t_{.975,n-1}/z_.975. With this factor the bootstrap interval of a mean
equals the t-interval.

Holm 1979; Hesterberg 2014 (arXiv:1411.5279), the expanded percentile interval.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats takes half a second to import

Array = NDArray[np.float64]
Floats = NDArray[np.float64] | float
"""An array, or a single number where the input has one axis only."""

LEVEL = 0.95
RESAMPLES = 4000


class Interval(NamedTuple):
    """A mean and its interval.

    All fields are NaN without values; `low` and `high` are NaN for a single value. Both equal the
    mean if all values are equal.
    """

    mean: Array
    low: Array
    high: Array


class Difference(NamedTuple):
    """A mean paired difference δ, its interval, and the p-value of δ = 0.

    `p` is NaN if the difference is the same for every seed.
    """

    mean: Array
    low: Array
    high: Array
    p: Array
    better: Array
    """P(δ < 0), the probability that the values are lower; 0 or 1 for an exact difference."""


def mean_interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """Return the mean over the last axis with its t-interval."""
    n, mean, error = _mean_and_error(np.asarray(values, dtype=np.float64))
    half = _t_of_count(n, level) * error
    return Interval(mean, mean - half, mean + half)


def paired_difference(
    values: ArrayLike, reference: ArrayLike | float, level: float = LEVEL
) -> Difference:
    """Return the mean of `values − reference` over the seeds (last axis) that both have."""
    n, mean, error = _mean_and_error(
        np.asarray(values, np.float64) - np.asarray(reference, np.float64)
    )
    half = _t_of_count(n, level) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, np.abs(mean) / error, np.nan)
    p = 2 * t_below(-t, np.where(n > 1, n - 1, np.nan))
    better = np.where(mean < 0, 1 - p / 2, p / 2)
    exact = (error == 0) & (mean != 0)
    better = np.where(exact, mean < 0, better)
    return Difference(mean, mean - half, mean + half, np.asarray(p), better)


def holm(p: ArrayLike) -> Array:
    """Return Holm's adjusted p-values. NaN stands for no test: it stays NaN and is not counted."""
    p = np.asarray(p, dtype=np.float64)
    adjusted = np.full_like(p, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = np.arange(len(order), 0, -1) * p[order]
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def rank_intervals(
    values: ArrayLike, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Array, Array]:
    """Return the lowest and highest plausible rank of each point; rank 1 has the least value.

    If a resample has none of a point's seeds, the point keeps its own mean. The interval always
    includes the observed rank.

    Args:
        values: losses (P, S), NaN where a point lacks a seed.
        level: coverage of the interval.
        resamples: number of bootstrap resamples of the seeds.
        seed: random seed of the resamples.

    Returns:
        Low and high ranks, (P,) each; NaN for points with fewer than two seeds.
    """
    values = np.asarray(values, dtype=np.float64)
    measured = ~np.isnan(values)
    n, mean, _ = _mean_and_error(values)
    ranked, resampled = n > 0, n > 1
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    if not resampled.any():
        return low, high
    deviations = np.where(measured, values - mean[:, None], 0.0)
    seeds = values.shape[1]
    counts = np.random.default_rng(seed).multinomial(seeds, np.full(seeds, 1 / seeds), resamples)
    sizes = counts @ measured.T
    shift = (counts @ deviations.T) / np.maximum(sizes, 1)  # (resamples, P)
    means = (mean + shift * bootstrap_scale(n, level))[:, ranked]
    tails = (1 - level) / 2, (1 + level) / 2
    quantiles = np.quantile(ranks(means), tails, axis=0, method="inverted_cdf")
    observed = ranks(mean[ranked])
    low[ranked] = np.minimum(quantiles[0], observed)
    high[ranked] = np.maximum(quantiles[1], observed)
    return np.where(resampled, low, np.nan), np.where(resampled, high, np.nan)


def ranks(values: Array) -> NDArray[np.int64]:
    """Return ranks along the last axis: one more than the number of lesser values."""
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    least = np.broadcast_to(np.arange(1, values.shape[-1] + 1), order.shape).copy()
    least[..., 1:][ordered[..., 1:] == ordered[..., :-1]] = 0  # ties take the rank of the first
    result = np.empty_like(order)
    np.put_along_axis(result, order, np.maximum.accumulate(least, axis=-1), axis=-1)
    return result


def t_below(t: Floats, freedom: Floats) -> Floats:
    """Return P(T ≤ t) for Student's t with `freedom` degrees of freedom."""
    return special.stdtr(freedom, t)


def t_quantile(level: float, freedom: Floats) -> Floats:
    """Return the t for which P(|T| ≤ t) = `level`."""
    return special.stdtrit(freedom, (1 + level) / 2)


def bootstrap_scale(n: Floats, level: float) -> Array:
    """Return the factor that widens a bootstrap over n values to the t-interval; 1 for n = 1."""
    safe = np.maximum(n, 2)
    return np.where(
        n > 1,
        np.sqrt(safe / (safe - 1)) * _t_of_count(safe, level) / special.ndtri((1 + level) / 2),
        1.0,
    )


def _mean_and_error(values: Array) -> tuple[Array, Array, Array]:
    """Return count, mean and standard error over the last axis; NaN values are left out."""
    measured = ~np.isnan(values)
    n = measured.sum(-1, dtype=np.float64)
    least = np.where(measured, values, np.inf).min(-1, initial=np.inf)
    most = np.where(measured, values, -np.inf).max(-1, initial=-np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(measured, values, 0.0).sum(-1) / n
        mean = np.where(least == most, least, mean)  # equal values: no rounding error
        deviations = np.where(measured, values - mean[..., None], 0.0)
        error = np.sqrt((deviations**2).sum(-1) / (n - 1) / n)
    return np.asarray(n), mean, np.asarray(error)


def _t_of_count(n: Floats, level: float) -> Floats:
    """Return the t-quantile of a two-sided interval over n values; NaN for n < 2."""
    return t_quantile(level, np.where(n > 1, n - 1, np.nan))
