r"""How much the losses of each point vary between seeds: shared as far as points are alike.

Three seeds say little about one point's variance; twelve points of three seeds say a lot, if the
points are alike. The estimates s_p² with f_p = n_p − 1 degrees of freedom, f s²/v ~ χ²_f, are those
of variances v_p that come from a distribution, which is estimated with them (empirical partially
Bayes):

    log v_p ~ (1 − π) N(m, ω²) + π U(m, m + log 400)     m, ω and π have priors on a grid

The first part is the bulk, the second are outliers, up to 20 times as noisy (and, with a tail that
falls as 1/v, beyond). The posterior of each v_p is computed on a grid, and a p-value is the mean of
the p-values that its variances give. So the interval knows how far the data determine the
variances. A point whose posterior probability to be an outlier exceeds `DOUBT` keeps its own
variance, under the second part alone: a variance that is wrongly shared is a wrong verdict, and one
that is wrongly kept is a lost one.

Where seeds share an effect b_s (`contrasts.py` says when it is used), it is removed first:

    e_ps = x_ps − x̄_p − median_p(x_ps − x̄_p)             centred again within each point
    s_p² = Σ_s e_ps² m_s/(m_s − 1) / (n_p − 1)           m_s points have seed s
    f_p  = (n_p − 1) · mean_s (m_s − 1)/m_s

With fewer than four varying points nothing is shared: they have ordinary t-tests. Rows outside the
comparison (baselines, leaking rows) do not enter the distribution or b_s.

Numbers of a metric lie on a grid: accuracies k/64, steps in multiples of 250, losses with two
decimals. Equal differences on a grid are no certainty; each number has at least the variance of its
rounding, γ²/12, where γ is the least distance between different values of the table.

Ignatiadis and Sen 2025 (Annals of Statistics; arXiv:2303.02887): partially Bayes p-values. Phipson
et al. 2016 (Ann. Appl. Stat. 10:946): outliers keep their variance. Smyth 2004: shared variances.
"""

from math import inf, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmzoo.lab.statistics.intervals import (
    Array,
    Indices,
    Mask,
    mean_and_error,
    undefined_is_nan,
)

LEAST_POINTS = 4
"""Fewer varying points share nothing; each then has its own variance."""
DOUBT = 0.1
"""Least probability of an outlier."""
NOISY = 4.0
"""A point is noisy if it is an outlier and its variance is this multiple of the usual one."""
SKEWED = 8
"""Seeds from which on a skewness is known."""
ACCURACY = 16 * np.finfo(float).eps
"""Relative distance below which two numbers are one."""
SINGLE = 2.0**-22
"""The same in single precision, on a grid of steps that are a thousand times as large."""
NORMAL = 1e6
"""Degrees of freedom beyond which Student's t is normal."""
BISECTIONS = 40
"""Halvings that give the end of an interval twelve digits."""
_STEP = np.log(2) / 2
"""Distance of the variances of the grid: two of them are a factor of two."""
_GRID = np.arange(-16, 69)
_WIDTHS = {0.0: 0.8, 0.5: 0.12, 1.0: 0.08}
"""ω -> prior probability."""
_OUTLIERS = {0.005: 0.6, 0.1: 0.25, 0.35: 0.15}
"""π -> prior probability."""
_RARE = 1e-7
"""Variances of less weight are left out."""


class Noise(NamedTuple):
    """What is known of the variances of P points; NaN for fewer than two seeds."""

    seeds: Array
    """n, (P,)."""
    own: Array
    """s², (P,), in nats²."""
    own_freedom: Array
    """f, (P,)."""
    variance: Array
    """(P, L): the variances that are possible, in nats²."""
    weight: Array
    """(P, L): their probabilities."""
    freedom: Array
    """(P,): infinity where the variances are those of a posterior, f where they are s²."""
    outlier: Mask
    """(P,): the points that keep their own variance."""
    skewness: Array
    """(P,); 0 for fewer than `SKEWED` seeds."""
    usual: float
    """Median of E[v] of the points that share their noise; 0 if nothing is shared."""

    def expected(self) -> Array:
        """Return E[v], (P,)."""
        return (self.weight * self.variance).sum(1)

    def noisy(self) -> Mask:
        """Return which points vary much more between seeds than the others, (P,)."""
        return self.outlier & (self.expected() >= NOISY * self.usual)


def rounding_variance(values: ArrayLike) -> float:
    """Return γ²/12 of numbers on a grid; 0 if all are equal, but for 1e-9 of their range."""
    x = np.asarray(values, np.float64)
    x = np.unique(x[np.isfinite(x)])
    if len(x) < 2:
        return 0.0
    steps = np.diff(x)
    # Steps that single precision makes are no grid, where the others are far larger.
    is_fine = steps <= SINGLE * np.abs(x[1:])
    coarse = steps[~is_fine]
    largest_fine = steps[is_fine].max(initial=0.0)
    if len(coarse) and coarse.min() > 1000 * largest_fine:
        steps = coarse
    # Smaller differences are rounding errors.
    span = x[-1] - x[0]
    largest = np.abs(x).max()
    accuracy = max(1e-9 * span, ACCURACY * largest)
    steps = steps[steps > accuracy]
    if not len(steps):
        return 0.0
    return float(steps.min()) ** 2 / 12


def without_seed_effects(x: Array, sharing: Mask) -> tuple[Array, Array]:
    """Return the losses (P, S) less b_s, NaN for seeds of one point, and (m_s − 1)/m_s, (S,)."""
    known = ~np.isnan(x)
    enough = np.ones(len(x), bool)
    # A seed is shared if two points have it; a point needs two of these. One can end the other.
    while True:
        points = known[sharing & enough].sum(0)
        is_shared = points > 1
        before = enough
        seeds = known[:, is_shared].sum(1)
        enough = enough & (seeds > 1)
        if (before == enough).all():
            break
    is_kept = is_shared & enough[:, None]
    x = np.where(is_kept, x, nan)
    _, mean, _ = mean_and_error(x)
    deviation = x - mean[:, None]
    shared = deviation[sharing & enough][:, is_shared]
    effect = np.zeros(len(points))
    # The median: one point that fails with a seed is no effect of the seed.
    effect[is_shared] = np.nanmedian(shared, 0)
    share = 1 - 1 / np.maximum(points, 2)
    return x - effect, share


def members(family: ArrayLike | None, points: int) -> Mask:
    """Return which points are in a family, as an array of its own; None: all."""
    if family is None:
        return np.ones(points, bool)
    return np.array(family, bool)


def seed_noise(
    losses: Array,
    family: Mask | None = None,
    rounding: ArrayLike = 0.0,
    share: ArrayLike = 1.0,
) -> Noise:
    """Return what is known of the variances of losses (P, S); NaN for runs that do not count.

    Args:
        losses: in nats.
        family: the points from which the distribution is estimated, bool (P,); None: all.
        rounding: the least variance of a number, () or (P,).
        share: (m_s − 1)/m_s of each seed, (S,), if b_s is removed.
    """
    known = ~np.isnan(losses)
    n = known.sum(1)
    points = len(n)
    _, mean, _ = mean_and_error(losses)
    deviation = losses - mean[:, None]
    deviation[~known] = 0.0
    # Less than 1 where the effect of a seed was estimated from few points.
    share = np.broadcast_to(share, losses.shape)
    # One seed has no variance.
    further = np.where(n > 1, n - 1, nan)
    with undefined_is_nan():
        s2 = (deviation**2 / share).sum(1) / further
        f = further * (known * share).sum(1) / n
    size = np.abs(losses).max(1, initial=0.0, where=known)
    farthest = np.abs(deviation).max(1, initial=0.0)
    # Equal numbers have deviations by rounding.
    varies = farthest > ACCURACY * size
    # Equal numbers on a grid are no certainty.
    s2 = np.maximum(s2, rounding)
    sharing = varies & members(family, points)
    variance = s2[:, None]
    known_variance = np.where(n > 1, 1.0, nan)
    weight = known_variance[:, None]
    freedom = f.copy()
    outlier = np.zeros(points, bool)
    usual = 0.0
    if sharing.sum() >= LEAST_POINTS:
        found = posterior(s2[varies], f[varies], sharing[varies])
        values, of_point, outlier[varies] = found
        # A point without variation keeps its own, spread over equal entries.
        shape = points, len(values)
        variance = np.broadcast_to(variance, shape).copy()
        variance[varies] = values
        weight = np.broadcast_to(weight / len(values), shape).copy()
        weight[varies] = of_point
        freedom[varies] = inf
        expected = of_point @ values
        # Median: outliers are among the points.
        of_sharing = expected[sharing[varies]]
        usual = float(np.median(of_sharing))
    return Noise(
        seeds=n.astype(float),
        own=s2,
        own_freedom=f,
        variance=variance,
        weight=weight,
        freedom=freedom,
        outlier=outlier,
        skewness=_skewness(deviation, n),
        usual=usual,
    )


def _skewness(deviation: Array, n: Indices) -> Array:
    """Return the skewness of each point, (P,); 0 for fewer than `SKEWED` seeds."""
    cubes = (deviation**3).sum(1)
    squares = (deviation**2).sum(1)
    with undefined_is_nan():
        skewness = cubes * np.sqrt(n) / squares**1.5
    is_known = (n >= SKEWED) & np.isfinite(skewness)
    return np.where(is_known, skewness, 0.0)


def posterior(
    variances: Array, freedom: Array, sharing: Mask | None = None
) -> tuple[Array, Array, Mask]:
    """Return the variances that are possible (L,), their weights (P, L) and the outliers (P,).

    Args:
        variances: estimates s², (P,).
        freedom: their degrees of freedom, (P,).
        sharing: those that determine the distribution; None: all.
    """
    sharing = members(sharing, len(variances))
    of_sharing = variances[sharing]
    scale = float(np.median(of_sharing))
    if not scale:  # most are 0
        scale = float(of_sharing.max()) or 1.0
    # Estimates are mostly low: the median of χ²_f/f is 0.5 for f = 1 and 0.7 for f = 2.
    scale = scale / 0.6
    ratio = np.maximum(variances / scale, 1e-12)
    # Of χ²_f, without what does not depend on v.
    chi_square = ratio[:, None] * np.exp(-_LOGS)
    of_variance = _LOGS + chi_square
    log_likelihood = -freedom[:, None] / 2 * of_variance
    most_likely = log_likelihood.max(1, keepdims=True)
    likelihood = np.exp(log_likelihood - most_likely)  # (P, K)
    of_bulk = likelihood @ _BULK.T  # (P, T)
    of_far = likelihood @ _FAR.T
    mixture = (1 - _PI) * of_bulk + _PI * of_far
    # A point far from all models must not give log 0.
    both = np.maximum(mixture, 1e-300)
    # Empirical Bayes: all points together weigh m, ω and π.
    log_model = _LOG_PRIOR + np.log(both[sharing]).sum(0)
    model = np.exp(log_model - log_model.max())
    model /= model.sum()
    outlier = (_PI * of_far / both) @ model > DOUBT
    # An outlier has the second part alone, so that no other point vouches for its variance.
    is_outlier = outlier[:, None]
    bulk = np.where(is_outlier, 0.0, (1 - _PI) / both)
    far_alone = 1 / np.maximum(of_far, 1e-300)
    far = np.where(is_outlier, far_alone, _PI / both)
    prior = (model * bulk) @ _BULK
    prior += (model * far) @ _FAR
    weight = likelihood * prior
    weight /= weight.sum(1, keepdims=True)
    weight[weight < _RARE] = 0.0
    # Fewer columns: each p-value is a sum over them.
    kept = weight.any(0)
    weight = weight[:, kept]
    weight = weight / weight.sum(1, keepdims=True)
    return scale * np.exp(_LOGS[kept]), weight, outlier


def _models() -> tuple[Array, Array, Array, Array]:
    """Return bulk and outliers of each model, (T, K) each, its π and its log prior, (T,) each."""
    bulk = []
    far = []
    share = []
    prior = []
    for middle in range(-12, 9):
        above = _STEP * (_GRID - middle)
        # Flat up to 400 times the variance of the bulk, 20 times its noise; then 1/v.
        fall = np.minimum(0.0, np.log(400) - above)
        falling = np.exp(fall)
        beyond = np.where(above < 0, 0.0, falling)
        for width, of_width in _WIDTHS.items():
            near = (above == 0).astype(float)
            if width:
                z = above / width
                near = np.exp(-(z**2) / 2)
            for pi, of_pi in _OUTLIERS.items():
                bulk.append(near / near.sum())
                far.append(beyond / beyond.sum())
                share.append(pi)
                prior.append(np.log(of_width * of_pi))
    return np.array(bulk), np.array(far), np.array(share), np.array(prior)


_LOGS = _STEP * _GRID
_BULK, _FAR, _PI, _LOG_PRIOR = _models()


def tail(weight: Array, sd: Array, freedom: Array, size: Array) -> Array:
    """Return P(error > size), (P,), for mixtures of Student's t: weights, sd and freedom (P, L).

    An error of 0 exceeds no size above 0, every size below it, and 0 with probability 1/2.
    """
    size = size[:, None]
    freedom = np.minimum(freedom, NORMAL)
    with undefined_is_nan():
        without_noise = (1 - np.sign(size)) / 2
        of_one = special.stdtr(freedom, -size / sd)
    of_one = np.where(sd == 0, without_noise, of_one)
    return (weight * of_one).sum(1)


def half_width(weight: Array, sd: Array, freedom: Array, level: float) -> Array:
    """Return the half of the interval that holds the error of a mixture with `level`, (P,)."""
    freedom = np.minimum(freedom, NORMAL)
    with undefined_is_nan():
        quantile = special.stdtrit(freedom, (1 + level) / 2)
        ends = quantile * sd
    # The end of a mixture is between those of its parts.
    low = np.where(weight > 0, ends, inf).min(1)
    high = ends.max(1)
    if sd.shape[1] > 1:
        for _ in range(BISECTIONS):
            # Ends may differ by orders of magnitude.
            middle = np.sqrt(low * high)
            is_low = 2 * tail(weight, sd, freedom, middle) > 1 - level
            low = np.where(is_low, middle, low)
            high = np.where(is_low, high, middle)
    is_unknown = np.isnan(weight).any(1)
    return np.where(is_unknown, nan, high)
