r"""Intervals of means and of paired differences over the n seeds of a point.

    interval       m ± t_{.975, n-1} s / √n                        over the n seeds of a point
    difference     the same for d_s = x_s − r_s                    over the seeds both have
    p              P(|T_{n-1}| > |d̄| √n / s_d)                     paired t-test; NaN if s_d = 0
    better         P(T_{n-1} > d̄ √n / s_d)                         P(δ < 0) under a flat prior

With a further variance τ² of the mean that is known, √(s²/n + τ²) replaces s/√n, and
ν = (n−1) (1 + τ² n/s²)² replaces n−1 (Satterthwaite 1946, Biometrics Bulletin 2:110).

NaN marks a value that was not measured. One seed gives no interval (NaN). If all seeds give the
same number, as for a count model, the number is exact: both ends of the interval equal it and
there is no test.

A percentile bootstrap over few seeds is too narrow. `bootstrap_scale` is the factor
√(n/(n−1)) t_{.975,n-1}/z_.975, with which the bootstrap interval of a mean equals the t-interval.

Hesterberg 2014 (arXiv:1411.5279), the expanded percentile interval.
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


def mean_interval(values: ArrayLike, level: float = LEVEL, variance: ArrayLike = 0.0) -> Interval:
    """Return the mean over the last axis with its t-interval; `variance` is the known τ²."""
    mean, error, freedom = _with_known(np.asarray(values, np.float64), variance)
    half = t_quantile(level, freedom) * error
    return Interval(mean, mean - half, mean + half)


def paired_difference(
    values: ArrayLike,
    reference: ArrayLike | float,
    level: float = LEVEL,
    variance: ArrayLike = 0.0,
) -> Difference:
    """Return the mean of `values − reference` over the seeds (last axis) that both have.

    `variance` is the known τ².
    """
    d = np.asarray(values, np.float64) - np.asarray(reference, np.float64)
    mean, error, freedom = _with_known(d, variance)
    half = t_quantile(level, freedom) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, np.abs(mean) / error, np.nan)
    p = 2 * t_below(-t, freedom)
    better = np.where(mean < 0, 1 - p / 2, p / 2)
    exact = (error == 0) & (mean != 0)
    better = np.where(exact, mean < 0, better)
    return Difference(mean, mean - half, mean + half, np.asarray(p), better)


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


def choice_spread(losses: ArrayLike) -> float:
    """Return the standard deviation over N settings of a point of their losses, (N, S).

    The settings are those that N tunings chose; all are trained with the same S seeds, and those
    count that all have. What the seeds do to settings that differ is part of it. 0: unknown.
    """
    x = np.asarray(losses, np.float64)
    means = x[:, np.isfinite(x).all(0)]
    return float(means.mean(1).std(ddof=1)) if means.shape[1] and len(x) > 1 else 0.0


def mean_and_error(values: Array) -> tuple[Array, Array, Array]:
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


def _with_known(values: Array, variance: ArrayLike) -> tuple[Array, Array, Array]:
    """Return mean, standard error and degrees of freedom, with a known variance of the mean."""
    n, mean, error = mean_and_error(values)
    known = np.asarray(variance, np.float64)
    freedom = np.where(n > 1, n - 1, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(known > 0, freedom * (1 + known / error**2) ** 2, freedom)
    return mean, np.sqrt(error**2 + known), freedom


def _t_of_count(n: Floats, level: float) -> Floats:
    """Return the t-quantile of a two-sided interval over n values; NaN for n < 2."""
    return t_quantile(level, np.where(n > 1, n - 1, np.nan))
