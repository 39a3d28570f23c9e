r"""How much the losses of each point vary between seeds: shared as far as points are alike.

Three seeds say little about one point's variance; twelve points of three seeds say a lot, if the
points are alike. The loss of point p with seed s is x_ps = μ_p + b_s + e_ps, where b_s is common to
all points (the order of the data, shared initial weights) and cancels in a difference, and e_ps
has the variance v_p. The residuals give

    e_ps = x_ps − x̄_p − median_p(x_ps − x̄_p)            centred again within each point
    s_p² = Σ_s e_ps² m_s/(m_s − 1) / (n_p − 1)           m_s points have seed s
    f_p  = (n_p − 1) · mean_s (m_s − 1)/m_s              degrees of freedom,  f s²/v ~ χ²_f

The v_p are draws of a distribution that is estimated with them (empirical partially Bayes):

    log v_p ~ (1 − π) N(m, ω²) + π U(m, m + log 400)     π = 0.05; m and ω have priors on a grid

The first part is the bulk, the second are outliers, up to 20 times as noisy (and, with a tail that
falls as 1/v, beyond). The posterior of all
v_p is computed on a grid, and a p-value is the mean of P(|N(0, v)| > |d|) over it. So the interval
knows how far the data determine the variances, and needs no degrees of freedom.

Test of homogeneity: a point whose posterior probability to be an outlier exceeds `DOUBT` is one: it
keeps its own variance, under the second part alone. The limits are less than one half, because a
variance that is wrongly shared is a wrong verdict, and one that is wrongly kept is a lost one. Two
seeds cannot tell: each point then is an outlier with a probability of at least `LEAST_DOUBT`.

Rows outside the comparison (baselines, leaking rows) do not enter the distribution or b_s. Points
of which all seeds are equal (count models) have v = 0. With fewer than four varying points nothing
is shared.

Ignatiadis and Sen 2025 (Annals of Statistics; arXiv:2303.02887): partially Bayes p-values. Phipson
et al. 2016 (Ann. Appl. Stat. 10:946): outliers keep their variance. Smyth 2004: shared variances.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmzoo.lab.statistics.intervals import (
    LEVEL,
    Array,
    Interval,
    mean_and_error,
    mean_interval,
    rounding_variance,
)

LEAST_POINTS = 4
"""Fewer varying points share nothing; each contrast then uses its own variance."""
OUTLIERS = 0.05
"""π."""
DOUBT = (0.07, 0.1)
"""Least probability of an outlier, with up to 2.5 degrees of freedom (3 seeds) and with more."""
LEAST_DOUBT = 0.3
"""Weight of the second part where there are fewer than 1.5 degrees of freedom (two seeds)."""
NOISY = 4.0
"""A point is noisy if it is an outlier and its variance is this multiple of the usual one."""
_STEP = np.log(2) / 2
_GRID = np.arange(-16, 69)
_WIDTHS = {0.0: 0.55, 0.35: 0.2, 0.7: 0.15, 1.1: 0.1}
"""ω -> prior probability."""


class Noise(NamedTuple):
    """The posterior of the variances of P points, under T models of their distribution."""

    variance: Array
    """(K,) in nats², increasing; the first is 0."""
    weight: Array
    """(P, T, K): probability of each variance under each model; NaN for fewer than two seeds."""
    model: Array
    """(T,): probability of each model; they sum to 1."""
    outlier: NDArray[np.bool_]
    """(P,): the points that keep their own variance."""
    common: float
    """Variance of b_s in nats²."""

    def expected(self) -> Array:
        """Return E[v], (P,)."""
        return self.weight @ self.variance @ self.model

    def noisy(self) -> NDArray[np.bool_]:
        """Return which points vary much more between seeds than the others, (P,)."""
        v = self.expected()
        usual = np.nanmedian(np.where(v > 0, v, np.nan)) if (v > 0).any() else np.inf
        return self.outlier & (v >= NOISY * usual)

    def pairs(self, reference: int | NDArray[np.int64]) -> Array:
        """Return the joint probability of v_p and v_reference, (P, K, K)."""
        of_reference = self.model[:, None] * self.weight[reference]
        return np.swapaxes(self.weight, 1, 2) @ of_reference


def seed_noise(
    losses: ArrayLike, family: ArrayLike | None = None, *, paired: bool = True
) -> Noise | None:
    """Return the posterior of the variances of losses (P, S); NaN and infinity are left out.

    Args:
        losses: in nats.
        family: the points from which the distribution is estimated, bool (P,); None: all.
        paired: whether the columns are seeds that all points share; if not, b_s = 0, and each s_p²
            is that of the point's own losses, with n_p − 1 degrees of freedom.

    Returns:
        None if nothing is shared.
    """
    x = np.asarray(losses, np.float64)
    x = np.where(np.isfinite(x), x, np.nan)
    family = np.ones(len(x), bool) if family is None else np.asarray(family, bool)
    count = (~np.isnan(x)).sum(1)
    least, most = (f(x, axis=1, initial=e, where=~np.isnan(x)) for f, e in _ENDS)
    varying = (count > 1) & (least < most)
    sharing = varying & family
    known, shared = ~np.isnan(x), np.ones(x.shape[1], bool)
    enough = np.ones(len(x), bool)
    # A seed is shared if two points have it; a point needs two of these. One can end the other.
    while paired:
        shared = known[sharing & enough].sum(0) > 1
        before, enough = enough, enough & (known[:, shared].sum(1) > 1)
        if (before == enough).all():
            break
    varying &= enough
    sharing &= enough
    if sharing.sum() < LEAST_POINTS:
        return None
    if paired:
        s2, f, common = _residual_variances(x[:, shared], varying, sharing)
    else:
        s2, f, common = mean_and_error(x)[2] ** 2 * count, count - 1.0, 0.0
    s2 = np.maximum(s2, rounding_variance(x))
    if not s2[sharing].max() > 0:  # all differences are exact
        return None
    s2 = np.maximum(s2, 1e-12 * s2[sharing].max())
    noise = posterior(s2[varying], f[varying], sharing[varying])
    weight = np.full((len(x), *noise.weight.shape[1:]), np.nan)
    weight[varying] = noise.weight
    weight[(count > 1) & (least == most)] = np.eye(len(noise.variance))[0]
    outlier = np.zeros(len(x), bool)
    outlier[varying] = noise.outlier
    median = 1.57 * float(np.nanmean(noise.expected()[sharing[varying]])) / sharing.sum()
    return noise._replace(weight=weight, outlier=outlier, common=max(common - median, 0.0))


_ENDS = ((np.min, np.inf), (np.max, -np.inf))


def posterior(
    variances: Array,
    freedom: Array,
    sharing: NDArray[np.bool_] | None = None,
    least_doubt: float = LEAST_DOUBT,
) -> Noise:
    """Return the posterior of variances whose estimates are s² with f degrees of freedom, (P,).

    `sharing` are those that determine the distribution; None: all. `least_doubt` is the least
    weight of the outliers with one degree of freedom.
    """
    sharing = np.ones(len(variances), bool) if sharing is None else sharing
    scale = float(np.median(variances[sharing])) / 0.6
    ratio = variances / scale
    log_likelihood = -freedom[:, None] / 2 * (_LOGS + ratio[:, None] * np.exp(-_LOGS))
    likelihood = np.exp(log_likelihood - log_likelihood.max(1, keepdims=True))  # (P, K)
    of_bulk, of_outliers = likelihood @ _BULK.T, likelihood @ _OUTLIERS.T  # (P, T)
    both = np.maximum((1 - OUTLIERS) * of_bulk + OUTLIERS * of_outliers, 1e-300)
    log_model = _LOG_PRIOR + np.log(both[sharing]).sum(0)
    model = np.exp(log_model - log_model.max())
    kept = model > 1e-4
    model = model[kept] / model[kept].sum()
    of_bulk, of_outliers, both = of_bulk[:, kept], of_outliers[:, kept], both[:, kept]
    probability = OUTLIERS * of_outliers / both @ model
    outlier = probability > np.where(freedom < 2.5, *DOUBT)
    least = np.where(freedom < 1.5, least_doubt, 0.0)
    share = np.where(outlier, 1.0, least)[:, None]
    bulk = np.where(share < 1, (1 - share) / np.maximum(of_bulk, 1e-300), 0.0)
    bulk = bulk[..., None] * _BULK[kept]
    weight = np.zeros((len(variances), len(model), len(_LOGS) + 1))
    weight[..., 1:] = likelihood[:, None] * (
        bulk + (share / np.maximum(of_outliers, 1e-300))[..., None] * _OUTLIERS[kept]
    )
    return Noise(np.append(0.0, scale * np.exp(_LOGS)), weight, model, outlier, 0.0)


def _models() -> tuple[Array, Array, Array]:
    """Return bulk and outliers of each model, (T, K) each, and the log prior of the models."""
    bulk, outliers, prior = [], [], []
    for middle in range(-12, 9):
        above = _STEP * (_GRID - middle)
        for width, probability in _WIDTHS.items():
            near = np.exp(-((above / width) ** 2) / 2) if width else (above == 0).astype(float)
            far = np.where(above < 0, 0.0, np.exp(np.minimum(0.0, np.log(400) - above)))
            bulk.append(near / near.sum())
            outliers.append(far / far.sum())
            prior.append(np.log(probability))
    return np.array(bulk), np.array(outliers), np.array(prior)


_LOGS = _STEP * _GRID
_BULK, _OUTLIERS, _LOG_PRIOR = _models()


def _residual_variances(
    x: Array, varying: NDArray[np.bool_], sharing: NDArray[np.bool_]
) -> tuple[Array, Array, float]:
    """Return s_p² and f_p, (P,) each, and the variance of b_s."""
    known = ~np.isnan(x)
    deviation = np.full_like(x, np.nan)
    deviation[varying] = x[varying] - np.nanmean(x[varying], 1, keepdims=True)
    common = np.nanmedian(deviation[sharing], 0)
    deviation = deviation - common
    e = np.full_like(x, np.nan)
    e[varying] = deviation[varying] - np.nanmean(deviation[varying], 1, keepdims=True)
    points = known[sharing].sum(0)
    share = np.where(sharing[:, None], (points - 1) / points, 1.0)
    n = known.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        f = (n - 1) * (known * share).sum(1) / n
        s2 = np.where(known & varying[:, None], e**2 / share, 0).sum(1) / (n - 1)
    return s2, f, float(common.var(ddof=1)) if len(common) > 1 else 0.0


def tail(weight: Array, sd: Array, size: Array) -> Array:
    """Return P(error > size), (P,), for mixtures of normals: weights and sd (P, L)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return (weight * special.ndtr(-size[:, None] / sd)).sum(1)


def half_width(weight: Array, sd: Array, level: float) -> Array:
    """Return the half of the interval that holds the error of a mixture with `level`, (P,)."""
    variance = (weight * sd**2).sum(1)
    high = np.sqrt(np.maximum(variance, 1e-300) / (1 - level))  # Chebyshev
    low = high * 1e-6
    for _ in range(40):
        middle = np.sqrt(low * high)
        over = 2 * tail(weight, sd, middle) > 1 - level
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return np.where(variance > 0, high, variance)


def point_intervals(
    losses: ArrayLike,
    family: ArrayLike | None = None,
    level: float = LEVEL,
    *,
    paired: bool = True,
) -> Interval:
    """Return the mean of each point with its interval over seeds; losses (P, S).

    The common part b_s does not cancel in the mean of one point, and S seeds say as much about it
    as S numbers. The interval adds its part to that of the point's own noise (MOVER; Zou and Donner
    2008, Statistics in Medicine 27:1693): half² = half_b² + half_v², with a t-interval for b.
    """
    x = np.asarray(losses, np.float64)
    x = np.where(np.isfinite(x), x, np.nan)
    noise = seed_noise(x, family, paired=paired)
    if noise is None:
        return mean_interval(x, level)
    n, mean, _ = mean_and_error(x)
    own = np.einsum("ptk,t->pk", noise.weight, noise.model)
    with np.errstate(invalid="ignore", divide="ignore"):
        of_common = special.stdtrit(np.where(n > 1, n - 1, np.nan), (1 + level) / 2) ** 2
        of_common = np.where(noise.expected() > 0, of_common * noise.common / n, 0.0)
        sd = np.sqrt(noise.variance / n[:, None])
        half = np.sqrt(half_width(own, sd, level) ** 2 + of_common)
    half = np.where(np.isnan(noise.expected()) | (n < 2), np.nan, half)
    return Interval(mean, mean - half, mean + half)
