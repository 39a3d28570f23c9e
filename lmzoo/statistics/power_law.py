r"""Losses against a size: a power law whose exponent may change with the size.

    log L = c − α u + γ u² + noise         u = log x − mean log x, weighted least squares
    exponent at x                          α − 2γ u
    band                                   exp( log L(x) ± t_{.975, ν} s(x) )
    s²     variance of the fitted log L(x), times max(1, χ²/dof) of the fit

The error of the mean loss of a size is that of its seeds, pooled over all sizes of all curves on
the log scale, because a few seeds of one size say little; ν counts the seeds. γ is 0 with fewer
than four sizes. With a χ² above its degrees of freedom the sizes do not lie on the curve, and the
band grows accordingly (Birge's ratio).

γ = 0: Kaplan et al. 2020 (arXiv:2001.08361). An irreducible loss bends the curve, and four sizes
do not determine it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmzoo.statistics.intervals import LEVEL, Array

ENOUGH = 4
"""Sizes from which on γ is fitted."""


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
    sizes: Array

    def log_loss(self, size: float) -> tuple[float, float]:
        """Return log L at a size, and its standard error."""
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
        half = self.quantile * error
        return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))

    def _u(self, size: float) -> float:
        return float(np.log(size) - np.log(self.sizes).mean())

    def _estimate(self, row: Array) -> tuple[float, float]:
        return float(row @ self.coefficients), float(np.sqrt(row @ self.covariance @ row))


def fit_power_laws(
    sizes: Sequence[Array], losses: Sequence[Sequence[ArrayLike]], tuning: Sequence[Array]
) -> list[PowerLaw]:
    """Fit one power law for each curve.

    Args:
        sizes: of each curve, the sizes x, at least two different ones.
        losses: of each curve and size, the losses of its seeds; not finite values are left out.
        tuning: of each curve, the standard deviation of each mean loss due to the tuning.
    """
    logs = [[_finite_logs(values) for values in curve] for curve in losses]
    counts = np.array([len(values) for curve in logs for values in curve])
    squares = sum(float(((v - v.mean()) ** 2).sum()) for curve in logs for v in curve if len(v))
    dof = int((counts - 1).clip(0).sum())
    variance = squares / dof if dof else np.nan
    quantile = float(special.stdtrit(dof, (1 + LEVEL) / 2)) if dof else float("nan")
    return [
        _fit(np.asarray(x, float), curve, np.asarray(sd, float), variance, quantile)
        for x, curve, sd in zip(sizes, logs, tuning, strict=True)
    ]


def _fit(x: Array, logs: list[Array], tuning: Array, variance: float, quantile: float) -> PowerLaw:
    known = np.array([len(values) > 0 for values in logs])
    x, logs, tuning = x[known], [v for v in logs if len(v)], tuning[known]
    means = np.array([values.mean() for values in logs])
    seeds = np.array([len(values) for values in logs])
    errors = np.sqrt(variance / seeds + (tuning / np.exp(means)) ** 2)
    weights = np.where(np.isfinite(errors) & (errors > 0), errors, 1.0)
    number = 3 if len(x) >= ENOUGH else 2
    rows = _terms(np.log(x) - np.log(x).mean(), number) / weights[:, None]
    inverse: Array = np.asarray(np.linalg.pinv(rows.T @ rows), np.float64)
    coefficients = inverse @ rows.T @ (means / weights)
    residuals = means / weights - rows @ coefficients
    dof = len(x) - number
    birge = float(np.sqrt(max(1.0, residuals @ residuals / dof))) if dof > 0 else 1.0
    scale = birge if np.isfinite(variance) else float("nan")
    return PowerLaw(coefficients, inverse * scale**2, birge, quantile, x)


def _terms(u: Array, number: int) -> Array:
    """Return the factors (sizes, number) of the coefficients."""
    return np.stack([np.ones_like(u), -u, u**2][:number], axis=1)


def _finite_logs(values: ArrayLike) -> Array:
    array = np.asarray(values, dtype=np.float64)
    return np.log(array[np.isfinite(array) & (array > 0)])


def log_ratio(first: PowerLaw, second: PowerLaw, size: float) -> tuple[float, float, float]:
    """Return log(L_first / L_second) at a size and the ends of its 95 % interval."""
    (a, error_a), (b, error_b) = first.log_loss(size), second.log_loss(size)
    half = first.quantile * float(np.hypot(error_a, error_b))
    return a - b, a - b - half, a - b + half
