r"""Differences of points to a reference, over the seeds that both have and over the tuning.

    δ̂_p  = mean_s (x_ps − x_rs)                          n common seeds
    Var  = (v_p + v_r)/n + τ_p² + τ_r²                   v: `noise.py`, τ: the tuning's sd
    p    = E P(|N(0, Var)| > |δ̂_p|)                      over the posterior of v_p and v_r

Where nothing is shared (fewer than four varying points), the n differences have their own variance:
Student's t with n − 1 degrees of freedom; with a tuning, with those of Satterthwaite. If every seed
gives the same difference and τ = 0, the difference is exact and there is no test; but numbers with
few decimals vary at least by their rounding. The setting of a point whose seeds are all equal, a
count model, is not a matter of chance: τ = 0.

A noisy reference may have m seeds of its own in addition to the n common ones. Its mean then is
x̄_r + λ (x̄_r(m) − x̄_r(n)), where λ minimises

    Var  = v_p/n + v_r ((1−λ)²/n + λ²/m) + λ² σ_b² (1/n + 1/m) + τ_p² + τ_r²

Runs that share no seeds have no d_s. Their means are compared; n_p and n_r replace n in Var. Where
nothing is shared, this is Welch's test, with the degrees of freedom of Satterthwaite.

A diverged run has no loss: it is left out here, and `compared.py` counts it.

Satterthwaite 1946 (Biometrics Bulletin 2:110). Welch 1947 (Biometrika 34:28).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmzoo.lab.statistics.intervals import LEVEL, Array, mean_and_error, rounding_variance
from lmzoo.lab.statistics.noise import Noise, half_width, seed_noise, tail


class Contrasts(NamedTuple):
    """The differences δ of P points to one reference; NaN for the reference and without seeds."""

    mean: Array
    error: Array
    """√Var, the root of its mean."""
    seeds: Array
    """n."""
    noise: Array
    """n times the part of Var that is due to seeds."""
    tuning: Array
    """τ_p² + τ_r²."""
    freedom: Array
    """Degrees of freedom where nothing is shared; NaN where the error is a mixture of normals."""
    weight: Array
    """(P, L): weights of the mixtures."""
    sd: Array
    """(P, L): their standard deviations in nats."""

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Which differences have no error, (P,)."""
        return np.equal(self.error, 0)

    def tail(self, size: Array) -> Array:
        """Return P(error > size), (P,); for an exact difference 0 or 1, and 1/2 for size 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            of_own = special.stdtr(self.freedom, -size / self.error)
        mixed = np.isnan(self.freedom) & ~np.isnan(self.error)
        result = np.asarray(of_own, np.float64)
        result[mixed] = tail(self.weight[mixed], self.sd[mixed], size[mixed])
        return np.where(self.exact, (1 - np.sign(size)) / 2, result)

    @property
    def p(self) -> Array:
        """p-value of δ = 0, (P,); NaN if there is no test."""
        return np.where(self.exact, np.nan, 2 * self.tail(np.abs(self.mean)))

    def half(self, level: float = LEVEL) -> Array:
        """Return half the interval that holds the difference with this probability, (P,)."""
        half = np.asarray(special.stdtrit(self.freedom, (1 + level) / 2) * self.error)
        mixed = np.isnan(self.freedom) & ~np.isnan(self.error)
        half[mixed] = half_width(self.weight[mixed], self.sd[mixed], level)
        return np.where(self.exact, 0.0, half)


def contrasts(
    losses: ArrayLike,
    reference: int | NDArray[np.int64],
    tuning_sd: ArrayLike = 0.0,
    *,
    family: ArrayLike | None = None,
    noise: Noise | None = None,
    paired: bool = True,
) -> Contrasts:
    """Return the differences of all points to one of them, or of each point to another.

    Args:
        losses: (P, S) in nats; NaN for a run that is missing, infinity for one that diverged.
        reference: index of the reference, or of that of each point, int (P,); a point that is its
            own reference has no difference.
        tuning_sd: standard deviation in nats of the loss over repetitions of the tuning, (P,).
        family: the points that share their noise, with the reference, bool (P,); None: all.
        noise: `seed_noise(losses, family, paired=paired)`, if it is known already.
        paired: whether the columns are seeds that all points share.
    """
    x = np.asarray(losses, np.float64)
    x = np.where(np.isfinite(x), x, np.nan)
    if noise is None:
        sharing = np.ones(len(x), bool) if family is None else np.array(family, bool)
        sharing[reference] = True
        noise = seed_noise(x, sharing, paired=paired)
    counts, means, own_error = mean_and_error(x)
    certain = (counts > 1) & (own_error == 0)
    square = np.where(certain, 0.0, np.broadcast_to(np.asarray(tuning_sd, np.float64), len(x)) ** 2)
    tuning = square + square[reference]
    own = np.arange(len(x)) == reference
    if not paired:
        delta = np.where(own, np.nan, means - means[reference])
        if noise is None:
            own_error = _rounded(own_error, counts, rounding_variance(x))
            return _welch(counts, delta, own_error, reference, tuning)
        n, v = np.minimum(counts, counts[reference]), noise.expected()
        with np.errstate(divide="ignore", invalid="ignore"):
            of_point, of_reference, of_common = 1 / counts, 1 / counts[reference], 0 * n
            balanced = (v + v[reference]) / (v / counts + (v / counts)[reference])
        mean, seeds_now = delta, np.where(np.isnan(balanced), n, balanced)
        of_reference = np.broadcast_to(of_reference, len(x))
    else:
        d = np.where(own[:, None], np.nan, x - x[reference])
        n, mean, error = mean_and_error(d)
        if noise is None:
            return _own(n, mean, _rounded(error, n, 2 * rounding_variance(x)), tuning)
        extra = np.where(np.isnan(x) & ~np.isnan(x[reference]), x[reference], np.nan)
        mean, of_point, of_reference, of_common = _with_extra_seeds(
            mean, x, extra, reference, noise, n
        )
        seeds_now = n
    v = noise.variance
    with np.errstate(invalid="ignore", divide="ignore"):
        seeds = of_point[:, None, None] * v[:, None] + of_reference[:, None, None] * v
        variance = seeds + (of_common * noise.common + tuning)[:, None, None]
        weight = noise.pairs(reference).reshape(len(x), -1)
        weight = np.where((n > 1)[:, None], weight, np.nan)
    used = np.nan_to_num(weight).max(0) > 1e-18
    weight = weight[:, used]
    weight = weight / weight.sum(1, keepdims=True)
    variance = variance.reshape(len(x), -1)[:, used]
    with np.errstate(invalid="ignore"):
        expected = (weight * variance).sum(1)
    expected[own] = np.nan
    freedom = np.full(len(x), np.nan)
    return Contrasts(
        mean,
        np.sqrt(expected),
        seeds_now,
        (expected - tuning) * seeds_now,
        tuning,
        freedom,
        weight,
        np.sqrt(variance),
    )


def _rounded(error: Array, n: Array, variance: Array | float) -> Array:
    """Return the standard errors of means of n numbers, at least those of their rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(n > 1, np.maximum(error, np.sqrt(variance / n)), error)


def _welch(
    n: Array, delta: Array, error: Array, reference: int | NDArray[np.int64], tuning: Array
) -> Contrasts:
    """Return the differences δ of means that share nothing; `error` is that of each mean."""
    w = np.where(n > 1, error**2, np.nan)
    variance = w + w[reference]
    with np.errstate(divide="ignore", invalid="ignore"):
        term = np.where(w > 0, w**2 / (n - 1), 0 * w)
        freedom = (variance + tuning) ** 2 / (term + term[reference])
        of_one = n * w + (n * w)[reference]
        seeds = np.where(variance > 0, of_one / variance, np.minimum(n, n[reference]))
    both = np.where(np.isnan(delta), np.nan, np.sqrt(variance + tuning))
    nothing = np.full((len(n), 1), np.nan)
    return Contrasts(delta, both, seeds, of_one, tuning, freedom, nothing, nothing)


def _own(n: Array, mean: Array, error: Array, tuning: Array) -> Contrasts:
    """Return the contrasts of differences that share nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(n > 1, n - 1, np.nan)
        freedom = np.where(tuning > 0, freedom * (1 + tuning / error**2) ** 2, freedom)
    both = np.sqrt(error**2 + tuning)
    nothing = np.full((len(n), 1), np.nan)
    return Contrasts(mean, both, n, error**2 * n, tuning, freedom, nothing, nothing)


def _with_extra_seeds(
    mean: Array,
    x: Array,
    extra: Array,
    reference: int | NDArray[np.int64],
    noise: Noise,
    n: Array,
) -> tuple[Array, Array, Array, Array]:
    """Return the means, and the factors of v_p, v_r and σ_b² in their variances, (P,) each."""
    m, of_extra, _ = mean_and_error(extra)
    common = np.where(np.isnan(x), np.nan, x[reference])
    with np.errstate(divide="ignore", invalid="ignore"):
        of_both = np.nanmean(np.where(np.isnan(common), 0.0, common), 1) * x.shape[1] / n
        v = np.where(noise.noisy(), noise.expected(), 0.0)[reference]
        least = (v + noise.common) / n + (v + noise.common) / m
        share = np.where((m > 0) & (v > 0), v / n / least, 0.0)
        of_reference = (1 - share) ** 2 / n + np.where(m > 0, share**2 / m, 0.0)
        of_common = np.where(m > 0, share**2 * (1 / n + 1 / m), 0.0)
        mean = mean - np.where(share > 0, share * (of_extra - of_both), 0.0)
        return mean, 1 / n, of_reference, of_common


def unfair(
    architectures: Sequence[str], tuned: Sequence[bool], reference: int
) -> NDArray[np.bool_]:
    """Return which points have another architecture than the reference, where one is not tuned.

    One learning rate is good for some architectures and poor for others, so that the difference is
    none of the architectures, and gets no verdict.
    """
    other = np.asarray(architectures) != architectures[reference]
    return other & ~(np.asarray(tuned, bool) & tuned[reference])


def holm(p: ArrayLike) -> Array:
    """Return Holm's adjusted p-values. NaN stands for no test: it stays NaN and is not counted."""
    p = np.asarray(p, dtype=np.float64)
    adjusted = np.full_like(p, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = np.arange(len(order), 0, -1) * p[order]
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
