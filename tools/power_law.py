r"""Losses against a size: a power law whose exponent may change with the size.

    log L_ks = c − α u_k + γ u_k² + b_s + e_ks        u = log x − mean log x, weighted least squares
    exponent at x                          α − 2γ u
    ratio of two curves at x               t_{.975, ν} s(x) of both; b_s cancels
    band                                   √( (t_{.975, ν} s(x))² + (t_{.975, S−1} s_b)² )
    s²     variance of the fitted log L(x), times max(1, χ²/dof) of the fit
    s_b²   Var(b_s) / S

All sizes of all curves are trained with the same S seeds. b_s is what a seed has in common at all
of them, so it cancels in an exponent and in a ratio and remains in a loss. Where a size lacks a
seed, the mean of the others is corrected by the estimates of b_s. The variance of e_ks is pooled
over all sizes of all curves, because a few seeds of one size say little; ν are the degrees of
freedom of the two-way layout. γ is 0 with fewer than four sizes. With a χ² above its degrees of
freedom the sizes do not lie on the curve, and the band grows accordingly (Birge's ratio).

γ = 0: Kaplan et al. 2020 (arXiv:2001.08361). An irreducible loss bends the curve, and four sizes
do not determine it. Band: MOVER, as `noise.point_intervals`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmzoo.lab.statistics.intervals import LEVEL, Array

ENOUGH = 4
"""Sizes from which on γ is fitted."""
_STEPS = 50
"""Alternating steps of the two-way means; one is exact without missing seeds."""


@dataclass(frozen=True)
class PowerLaw:
    """A fitted curve."""

    coefficients: Array
    """(c, α), or (c, α, γ)."""
    covariance: Array
    """Of the coefficients, Birge's ratio included."""
    birge: float
    """√max(1, χ²/dof): 1 where the sizes lie on the curve within their errors."""
    quantile: float
    """t_{.975, ν}."""
    of_seeds: float
    """t_{.975, S−1} s_b: half the interval of the mean of b_s."""
    sizes: Array

    def log_loss(self, size: float) -> tuple[float, float]:
        """Return log L at a size, and its standard error without the part that all curves share."""
        row = _terms(np.array([self._u(size)]), len(self.coefficients))[0]
        return self._estimate(row)

    def exponent(self, size: float) -> tuple[float, float, float]:
        """Return the exponent at a size and the ends of its 95 % interval."""
        row = np.array([0.0, 1.0, -2 * self._u(size)])[: len(self.coefficients)]
        mean, error = self._estimate(row)
        half = self.quantile * error
        return mean, mean - half, mean + half

    def band(self, size: float) -> tuple[float, float, float]:
        """Return the loss at a size and the ends of its 95 % interval."""
        mean, error = self.log_loss(size)
        half = float(np.hypot(self.quantile * error, self.of_seeds))
        return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))

    def _u(self, size: float) -> float:
        return float(np.log(size) - np.log(self.sizes).mean())

    def _estimate(self, row: Array) -> tuple[float, float]:
        return float(row @ self.coefficients), float(np.sqrt(row @ self.covariance @ row))


def fit_power_laws(
    sizes: Sequence[Array], losses: Sequence[ArrayLike], tuning: Sequence[Array]
) -> list[PowerLaw]:
    """Fit one power law for each curve.

    Args:
        sizes: of each curve, the sizes x, (K,), at least two different ones.
        losses: of each curve, (K, S), the same seeds in the same order; not finite values are left
            out.
        tuning: of each curve, the standard deviation of each mean loss due to the tuning, (K,).
    """
    y = _finite_logs(np.concatenate([np.asarray(values, np.float64) for values in losses]))
    common, variance, dof, of_common = _two_way(y)
    count = (~np.isnan(y)).sum(1)
    quantile = float(special.stdtrit(dof, (1 + LEVEL) / 2)) if dof else float("nan")
    seeds = int((~np.isnan(y).all(0)).sum())
    of_seeds = float(special.stdtrit(max(seeds - 1, 1), (1 + LEVEL) / 2)) if of_common else 0.0
    of_seeds *= np.sqrt(of_common / seeds)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.nansum(y - common, 1) / count
        noise = variance / count
    ends = np.cumsum([len(x) for x in sizes])[:-1]
    parts = zip(sizes, np.split(means, ends), np.split(noise, ends), tuning, strict=True)
    return [
        _fit(np.asarray(x, float), mean, own, np.asarray(sd, float), quantile, of_seeds)
        for x, mean, own, sd in parts
    ]


def _two_way(y: Array) -> tuple[Array, float, int, float]:
    """Return b_s (S,), the variance of e, its degrees of freedom and the variance of b_s."""
    several = (~np.isnan(y)).sum(1) > 1
    x = y[several]
    known = ~np.isnan(x)
    there = known.any(0)
    common = np.zeros(y.shape[1])
    paired = len(x) > 1 and there.sum() > 1
    mean = np.nanmean(x, 1, keepdims=True)
    for _ in range(_STEPS if paired else 0):  # least squares, where seeds are missing
        common[there] = np.nanmean((x - mean)[:, there], 0)
        common[there] -= common[there].mean()
        mean = np.nanmean(x - common, 1, keepdims=True)
    e = x - mean - common
    dof = int(known.sum() - len(x) - (there.sum() - 1 if paired else 0))
    variance = float(np.nansum(e**2)) / dof if dof > 0 else np.nan
    of_common = float(common[there].var(ddof=1)) - variance / len(x) if paired else 0.0
    return common, variance, max(dof, 0), max(np.nan_to_num(of_common), 0.0)


def _fit(
    x: Array, means: Array, noise: Array, tuning: Array, quantile: float, of_seeds: float
) -> PowerLaw:
    known = ~np.isnan(means)
    x, means, noise, tuning = x[known], means[known], noise[known], tuning[known]
    errors = np.sqrt(noise + (tuning / np.exp(means)) ** 2)
    weights = np.where(np.isfinite(errors) & (errors > 0), errors, 1.0)
    number = 3 if len(x) >= ENOUGH else 2
    rows = _terms(np.log(x) - np.log(x).mean(), number) / weights[:, None]
    inverse: Array = np.asarray(np.linalg.pinv(rows.T @ rows), np.float64)
    coefficients = inverse @ rows.T @ (means / weights)
    residuals = means / weights - rows @ coefficients
    dof = len(x) - number
    birge = float(np.sqrt(max(1.0, residuals @ residuals / dof))) if dof > 0 else 1.0
    scale = birge if np.isfinite(noise).all() else float("nan")
    return PowerLaw(coefficients, inverse * scale**2, birge, quantile, of_seeds, x)


def _terms(u: Array, number: int) -> Array:
    """Return the factors (sizes, number) of the coefficients."""
    return np.stack([np.ones_like(u), -u, u**2][:number], axis=1)


def _finite_logs(values: Array) -> Array:
    """Return the logarithms, NaN for what is not finite and positive."""
    good = np.isfinite(values) & (values > 0)
    return np.log(np.where(good, values, np.nan))


def log_ratio(first: PowerLaw, second: PowerLaw, size: float) -> tuple[float, float, float]:
    """Return log(L_first / L_second) at a size and the ends of its 95 % interval."""
    (a, error_a), (b, error_b) = first.log_loss(size), second.log_loss(size)
    half = first.quantile * float(np.hypot(error_a, error_b))
    return a - b, a - b - half, a - b + half
