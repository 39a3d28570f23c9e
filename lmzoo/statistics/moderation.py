r"""Variances between seeds, shared across the points of a study by empirical Bayes.

Three seeds say little about one point's variance; twelve points of three seeds say a lot. The loss
of point p with seed s is x_ps = μ_p + b_s + e_ps, where b_s is common to all points (the order of
the data, shared initial weights) and cancels in a difference. Its residuals are

    e_ps = x_ps − x̄_p − median_p(x_ps − x̄_p)            centred again within each point
    s_p² = Σ_s e_ps² m_s/(m_s − 1) / (n_p − 1)           m_s points have seed s
    f_p  = (n_p − 1) · mean_s (m_s − 1)/m_s              degrees of freedom
    ṽ_p  = (d_0 s_0² + f_p s_p²) / (d_0 + f_p)           with d_0 + f_p degrees of freedom

The prior, s_p² ~ s_0² F(f_p, d_0), is limma's: the mean and the variance of log s_p² give s_0² and
d_0. If the log variances scatter no more than by chance, d_0 is infinite and all points share one
variance. No variance has more degrees of freedom than the study, Σ f_p.

ṽ_p is at least s_0²: a small sample variance of few seeds is not trusted, because with skewed noise
it means that no seed has hit the tail yet, and then the mean is too low as well.

Smyth 2004 (Stat. Appl. Genet. Mol. Biol. 3:3), section 6.2.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from lmzoo.statistics.intervals import (
    LEVEL,
    Array,
    Interval,
    mean_and_error,
    mean_interval,
    t_quantile,
)

LEAST_POINTS = 4
"""Fewer varying points do not determine a prior; each contrast then uses its own variance."""


class Spread(NamedTuple):
    """The variance between the seeds of each point, after the part that all points share."""

    variance: Array
    """ṽ_p in nats², (P,); NaN for a point that is exact or has fewer than two seeds."""
    freedom: Array
    """Degrees of freedom of ṽ_p, (P,)."""
    total: float
    """Degrees of freedom of all points together; 0 if nothing is shared."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """The points whose variance is shared."""
        return ~np.isnan(self.variance)


def prior_of_variances(variances: ArrayLike, freedom: ArrayLike) -> tuple[float, float]:
    """Return d_0 and s_0² of sample variances with their degrees of freedom, both (P,)."""
    s2, half = np.asarray(variances, np.float64), np.asarray(freedom, np.float64) / 2
    logs = np.log(s2) - special.digamma(half) + np.log(half)
    excess = float(logs.var(ddof=1) - special.polygamma(1, half).mean())
    if excess <= special.polygamma(1, 1e4):
        return float("inf"), float(np.average(s2, weights=half))
    x = optimize.brentq(lambda x: float(special.polygamma(1, x)) - excess, 1e-3, 1e4)
    d0 = 2 * float(np.asarray(x))
    return d0, float(np.exp(logs.mean() + special.digamma(d0 / 2) - np.log(d0 / 2)))


def moderate(variances: Array, freedom: Array, total: float) -> tuple[Array, Array]:
    """Return ṽ and its degrees of freedom, at most `total`, of sample variances, (P,) each."""
    d0, s0 = prior_of_variances(variances, freedom)
    pooled = (d0 * s0 + freedom * variances) / (d0 + freedom) if np.isfinite(d0) else s0
    return np.maximum(pooled, s0), np.minimum(d0 + freedom, total)


def seed_spread(losses: ArrayLike) -> Spread:
    """Return the moderated variances of losses (P, S); NaN and infinity are left out."""
    x = np.asarray(losses, np.float64)
    x = np.where(np.isfinite(x), x, np.nan)
    nothing = np.full(len(x), np.nan)
    count = np.isfinite(x).sum(1)
    least, most = (f(x, axis=1, initial=e, where=~np.isnan(x)) for f, e in _ENDS)
    varying = (count > 1) & (least < most)
    shared = (~np.isnan(x[varying])).sum(0) > 1
    varying &= (~np.isnan(x[:, shared])).sum(1) > 1
    if varying.sum() < LEAST_POINTS:
        return Spread(nothing, nothing, 0.0)
    f, s2 = _residual_variances(x[varying])
    if not (s2.max() > 0 and (f > 0).all()):  # all differences are exact
        return Spread(nothing, nothing, 0.0)
    s2 = np.maximum(s2, 1e-12 * s2.max())
    total = float(f.sum())
    variance, freedom = nothing.copy(), nothing.copy()
    variance[varying], freedom[varying] = moderate(s2, f, total)
    return Spread(variance, freedom, total)


_ENDS = ((np.min, np.inf), (np.max, -np.inf))


def _residual_variances(x: Array) -> tuple[Array, Array]:
    """Return the degrees of freedom f_p and the variances s_p², (P,) each."""
    known = ~np.isnan(x)
    points = known.sum(0)
    shared = points > 1
    x, known, points = x[:, shared], known[:, shared], points[shared]
    n = known.sum(1)
    deviation = x - np.nanmean(x, 1, keepdims=True)
    deviation = deviation - np.nanmedian(deviation, 0)
    e = deviation - np.nanmean(deviation, 1, keepdims=True)
    share = (points - 1) / points
    f = (n - 1) * (known * share).sum(1) / n
    s2 = np.where(known, e**2 / share, 0).sum(1) / (n - 1)
    return f, s2


def moderated_intervals(losses: ArrayLike, level: float = LEVEL) -> Interval:
    """Return the mean of each point with its interval over seeds; losses (P, S).

    The variance of a point's losses is shared across points as above, without removing the seeds'
    common part. Points whose losses go up and down together say the same about it: with the mean
    correlation ρ between points, all together have (S − 1) / (1/P + (1 − 1/P) ρ²) degrees of
    freedom.
    """
    x = np.asarray(losses, np.float64)
    x = np.where(np.isfinite(x), x, np.nan)
    n, mean, error = mean_and_error(x)
    varying = error > 0
    if varying.sum() < LEAST_POINTS:
        return mean_interval(x, level)
    own = x[varying] - mean[varying, None]
    f, s2 = n[varying] - 1, (error[varying] ** 2) * n[varying]
    scaled = own / np.sqrt(s2)[:, None]
    with np.errstate(invalid="ignore"):
        sums = np.nansum(scaled, 0) ** 2 - np.nansum(scaled**2, 0)
    P = len(own)
    rho = float(np.clip(sums.sum() / f.mean() / (P * (P - 1)), 0, 1))
    total = float(f.mean()) / (1 / P + (1 - 1 / P) * rho**2)
    variance, freedom = moderate(s2, f, total)
    half = np.where(n > 1, 0.0, np.nan)
    half[varying] = t_quantile(level, freedom) * np.sqrt(variance / n[varying])
    return Interval(mean, mean - half, mean + half)
