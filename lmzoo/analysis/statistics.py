r"""What may be concluded from P points measured on the same S seeds. NaN where not measured.

    interval       m ± t_{.975, n-1} s / √n                        over the n seeds of a point
    difference     the same of d_s = x_s − r_s                     over the seeds both have
    p              P(|T_{n-1}| > |d̄| √n / s_d)                     paired t-test; NaN if s_d = 0
    better         P(T_{n-1} > d̄ √n / s_d)                         P(δ < 0) under a flat prior
    Holm           p'_(i) = max_{j ≤ i} min(1, (k − j + 1) p_(j))  over k tests
    rank interval  the 2.5 % and 97.5 % quantiles of a point's rank when seeds are drawn
                   with replacement, the same draw for every point

With one seed there is no interval, and NaN says so. Where every seed gives the same
number (a count model, and the difference of two) there is no sample to judge: the number
is exact, its interval is itself, and a test would only ask how often it was copied.

A bootstrap over few seeds is too
narrow (three seeds rank two equal points with certainty once in four studies), so each
drawn mean's distance from the point's mean is stretched by √(n/(n−1)) t_{.975,n-1}/z_.975,
the factor that makes the bootstrap's interval of a mean equal the t-interval.

Holm 1979; Hesterberg 2014 (arXiv:1411.5279), the expanded percentile interval.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats takes half a second to import

Array = NDArray[np.float64]
Floats = NDArray[np.float64] | float
"""An array, or a number where the last axis was the only one."""

LEVEL = 0.95
RESAMPLES = 4000


class Interval(NamedTuple):
    """A mean and its interval; all NaN without values, the ends NaN with one.

    Both ends are the mean where all values are the same.
    """

    mean: Array
    low: Array
    high: Array


class Difference(NamedTuple):
    """A mean paired difference, its interval, and the p-value of its being zero.

    No p, NaN, where it is the same for every seed.
    """

    mean: Array
    low: Array
    high: Array
    p: Array
    better: Array
    """P(δ < 0), that the values are the lower: where p is, and 0 or 1 where it is exact."""


def mean_interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """The mean over the last axis with its t-interval."""
    n, mean, error = _moments(np.asarray(values, dtype=np.float64))
    half = _t(n, level) * error
    return Interval(mean, mean - half, mean + half)


def paired_difference(values: ArrayLike, reference: ArrayLike, level: float = LEVEL) -> Difference:
    """The mean of `values − reference` over the seeds (last axis) that both have."""
    n, mean, error = _moments(np.asarray(values, np.float64) - np.asarray(reference, np.float64))
    half = _t(n, level) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, np.abs(mean) / error, np.nan)
    p = 2 * t_below(-t, np.where(n > 1, n - 1, np.nan))
    better = np.where(mean < 0, 1 - p / 2, p / 2)
    exact = (error == 0) & (mean != 0)
    better = np.where(exact, mean < 0, better)
    return Difference(mean, mean - half, mean + half, np.asarray(p), better)


def holm(p: ArrayLike) -> Array:
    """Holm's adjusted p-values; a NaN is no test, stays NaN and does not count."""
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
    """The lowest and highest plausible rank (1 is least) of each row of `values` (P, S).

    A draw that holds none of a point's seeds leaves it at its own mean. The interval
    always holds the observed rank. Points with fewer than two seeds get NaN, and so
    does everyone when nobody can be resampled.
    """
    values = np.asarray(values, dtype=np.float64)
    measured = ~np.isnan(values)
    n, mean, _ = _moments(values)
    placed, drawn = n > 0, n > 1
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    if not drawn.any():
        return low, high
    away = np.where(measured, values - mean[:, None], 0.0)
    seeds = values.shape[1]
    counts = np.random.default_rng(seed).multinomial(seeds, np.full(seeds, 1 / seeds), resamples)
    sizes = counts @ measured.T
    shift = (counts @ away.T) / np.maximum(sizes, 1)  # resamples x P
    means = (mean + shift * stretch(n, level))[:, placed]
    drawn_ranks = ranks(means)
    ends = (1 - level) / 2, (1 + level) / 2
    found = np.quantile(drawn_ranks, ends, axis=0, method="inverted_cdf")
    observed = ranks(mean[placed])
    low[placed] = np.minimum(found[0], observed)
    high[placed] = np.maximum(found[1], observed)
    return np.where(drawn, low, np.nan), np.where(drawn, high, np.nan)


def ranks(values: Array) -> NDArray[np.int64]:
    """Each value's rank among those beside it (last axis): one more than how many are less."""
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    least = np.broadcast_to(np.arange(1, values.shape[-1] + 1), order.shape).copy()
    least[..., 1:][ordered[..., 1:] == ordered[..., :-1]] = 0  # equals have the first one's
    found = np.empty_like(order)
    np.put_along_axis(found, order, np.maximum.accumulate(least, axis=-1), axis=-1)
    return found


def t_below(t: Floats, freedom: Floats) -> Floats:
    """P(T ≤ t)."""
    return special.stdtr(freedom, t)


def t_quantile(level: float, freedom: Floats) -> Floats:
    """The t that T stays within, on both sides of zero, with probability `level`."""
    return special.stdtrit(freedom, (1 + level) / 2)


def _moments(values: Array) -> tuple[Array, Array, Array]:
    """Count, mean and standard error over the last axis, NaN left out."""
    measured = ~np.isnan(values)
    n = measured.sum(-1, dtype=np.float64)
    least = np.where(measured, values, np.inf).min(-1, initial=np.inf)
    most = np.where(measured, values, -np.inf).max(-1, initial=-np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(measured, values, 0.0).sum(-1) / n
        mean = np.where(least == most, least, mean)  # no rounding where nothing varies
        away = np.where(measured, values - mean[..., None], 0.0)
        error = np.sqrt((away**2).sum(-1) / (n - 1) / n)
    return np.asarray(n), mean, np.asarray(error)


def _t(n: Floats, level: float) -> Floats:
    """The t-quantile of a two-sided interval over n values; NaN below two."""
    return t_quantile(level, np.where(n > 1, n - 1, np.nan))


def stretch(n: Floats, level: float) -> Array:
    """How much a bootstrap of n values is too narrow; 1 where nothing is drawn."""
    safe = np.maximum(n, 2)
    return np.where(
        n > 1, np.sqrt(safe / (safe - 1)) * _t(safe, level) / special.ndtri((1 + level) / 2), 1.0
    )
