r"""Differences of points, with the uncertainty of the seeds and of the tuning, and their ranks.

Of a point to the reference:

    δ̂_p  = x̄_p − x̄_r                                    means of n_p and n_r runs
    Var  = v_p/n_p + V_r/n_r + τ_p² + τ_r²               v: `noise.py`, τ: the tuning's sd
    V_r  = max(s_r², v̄) (1 + g²/3) (1 + 1/(2n_r − 2))    v̄: the usual v_p; g: skewness of r
    p    = E P(|T_ν| > |δ̂_p|/√Var)                       over the posterior of v_p
    ν    = Var² / (V_r²/n_r²/(n_r − 1))                  Satterthwaite; v_p is known under each v_p

The reference has its own variance: it enters all contrasts, so that no other point may vouch for
it; but a variance below that of the points is luck. Its skewness g widens the interval, because the
mean of skewed numbers is low where their variance is estimated too low; with fewer than eight seeds
it is not known. Nor do few seeds show that one in five of them fails, and then all contrasts are
wrong together: the last factor. Fewer than four points, the reference included, have none of these
factors: this is Welch's test. Three points and a reference have them, and share no variance.

**Pairs.** Runs of one seed share the order of the data and initial weights. Two arms on equal seeds
have the paired t-test: in the crash test (`docs/results/crash_test.md`) their rank correlation is
0.3 (median), and pairs find more than means from four seeds on. With several contrasts the
reference has more seeds than a point, and means are compared: in the recorded studies the seeds
share 10 % of the variance (median). Only if the effects of the seeds are shown (F-test at 0.2 %, in
units of each point's sd) and leave less than `PAYS` of the variance of the median contrast, they
are removed (`noise.without_seed_effects`); the seeds that only the reference has then do not count.

The setting of a point whose seeds are all equal, a count model, is not a matter of chance: τ = 0. A
diverged run has no loss: it is left out here, and `compared.py` counts it.

**Ranks.** The differences of all pairs of the P points give intervals of the ranks of the true
means:

    rank ∈ [1 + #{q: better than p},  P − #{q: worse than p}]

"Better" and "worse" are t-tests of the two means, with Holm's correction over the P − 1 comparisons
of the point: the interval of each point holds its true rank with the given probability, whatever
the means, also if many are equal. A bootstrap of ranks does not: its intervals are too narrow where
points are close. The variance of a point has the posterior of `noise.py`; the t-test has the mean
of 1/v, and the degrees of freedom 2 E[1/v]²/Var[1/v], exact for a scaled inverse χ².

Satterthwaite 1946 (Biometrics Bulletin 2:110). Welch 1947 (Biometrika 34:28). Johnson 1978 (JASA
73:536) on the t-test of skewed numbers. Mogstad, Romano, Shaikh and Wilhelm 2024 (Review of
Economic Studies 91:476; arXiv:2011.08779) on ranks.
"""

from collections.abc import Sequence
from math import inf, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmzoo.lab.statistics.counts import counts
from lmzoo.lab.statistics.intervals import (
    LEVEL,
    Array,
    Indices,
    Interval,
    Mask,
    mean_and_error,
    mean_interval,
    undefined_is_nan,
)
from lmzoo.lab.statistics.noise import (
    LEAST_POINTS,
    Noise,
    half_width,
    members,
    rounding_variance,
    seed_noise,
    tail,
    without_seed_effects,
)

MISSED = 0.5
"""The variance of a reference of several contrasts is 1 + MISSED/(n − 1) times the measured one."""
SHOWN = 0.998
"""Level of the test of the effects of seeds."""
PAYS = 1 / 4
"""Seed effects are removed if they leave less than this share of the variance of a contrast."""
FAR = 4.0
"""A residual of so many usual standard deviations moves the contrasts that it speaks against."""
EQUAL = 3 / 4
"""Two arms have equal seeds if they share this part of the seeds of the larger one."""


class Contrasts(NamedTuple):
    """The differences δ of P points to one reference; NaN for the reference and without seeds."""

    mean: Array
    error: Array
    """√Var, the root of its mean."""
    seeds: Array
    """n_p."""
    noise: Array
    """n_p times the part of Var that is due to seeds: where both grow alike, Var(n) = noise/n."""
    of_reference: Array
    """The part of Var that is due to the seeds of the reference."""
    reference_seeds: Array
    """n_r."""
    reference_noise: Array
    """s_r²."""
    tuning: Array
    """τ_p² + τ_r²."""
    weight: Array
    """(P, L): weights of the mixtures of Student's t."""
    sd: Array
    """(P, L): their standard deviations in nats."""
    freedom: Array
    """(P, L): their degrees of freedom."""
    noisy: Mask
    """Which points vary much more between seeds than the others, (P,)."""
    paired: bool
    """Whether the effects of the seeds are removed."""
    worst: Array
    """e_p: the largest residual of the study that makes the difference smaller, (P,).

    0 for a point without noise, as a count model.
    """
    usual: float
    """The usual standard deviation of a seed; 0 where points share nothing."""

    def tail(self, size: Array) -> Array:
        """Return P(error > size), (P,)."""
        return tail(self.weight, self.sd, self.freedom, size)

    @property
    def p(self) -> Array:
        """p-value of δ = 0, (P,)."""
        return np.minimum(2 * self.tail(self.cautious_size), 1.0)

    @property
    def moved(self) -> Array:
        """By how much one more seed as bad as the worst one moves δ̂ if that is far off, (P,)."""
        is_far = self.worst > FAR * self.usual
        is_shared = self.usual > 0
        one_more = np.where(is_far & is_shared, self.worst, 0.0)
        return one_more / (self.seeds + 1)

    @property
    def cautious_size(self) -> Array:
        """|δ̂| after one more seed as bad as the worst one, (P,)."""
        smaller = np.abs(self.mean) - self.moved
        return np.maximum(smaller, 0.0)

    def half(self, level: float = LEVEL) -> Array:
        """Return half the interval that holds the difference with this probability, (P,).

        It holds 0 exactly if `p` is 1 − level or more: it has room for one more bad seed, too.
        """
        half = half_width(self.weight, self.sd, self.freedom, level)
        return self.moved + half


def contrasts(
    losses: ArrayLike,
    reference: int | Indices,
    tuning_sd: ArrayLike = 0.0,
    *,
    family: ArrayLike | None = None,
    paired: bool | None = None,
) -> Contrasts:
    """Return the differences of all points to one of them, or of each point to another.

    Args:
        losses: (P, S) in nats; NaN for a run that is missing, infinity for one that diverged.
        reference: index of the reference, or of that of each point, int (P,); a point that is its
            own reference has no difference.
        tuning_sd: standard deviation in nats of the loss over repetitions of the tuning, (P,).
        family: the points that share their noise, bool (P,); None: all.
        paired: whether the effects of the seeds, the columns, are removed; None: if it pays.
    """
    x = _finite(losses)
    points = np.arange(len(x))
    reference_of = np.broadcast_to(reference, len(x))
    is_own = points == reference_of
    sharing = members(family, len(x))
    sharing[reference_of[sharing & ~is_own]] = True
    compared = sharing & ~is_own
    references = np.unique(reference_of[compared])
    is_single = len(references) == 1
    certain = _certain(x, sharing)
    of_setting = np.where(certain, 0.0, np.square(tuning_sd))
    # Both settings were chosen by chance.
    tuning = of_setting + of_setting[reference_of]
    count, _, _ = mean_and_error(x)
    # Fewer points have ordinary t-tests.
    is_enough = (count[sharing] > 1).sum() >= LEAST_POINTS
    if paired is None:
        paired = pairs_pay(x, reference_of, compared)
    rounding = rounding_variance(x[sharing])
    share: ArrayLike = 1.0
    if paired and is_enough:
        x, share = without_seed_effects(x, sharing)
    elif paired:
        # Too few points to estimate the effects: the differences of each pair have none.
        differences = x - x[reference_of]
        x = np.where(is_own[:, None], 0.0, differences)
        rounding = np.where(is_own, 0.0, 2 * rounding)
    alike = sharing
    if is_single:
        # A single reference has its own variance, which does not enter the distribution.
        alike = sharing & ~is_own
    noise = seed_noise(x, alike, rounding, share)
    has_factors = is_single and is_enough
    of_reference = _of_reference(noise, certain, is_single=has_factors)
    mixture = _mixture(noise, of_reference, reference_of, tuning)
    # The mean over the variances that are possible.
    expected = (noise.weight * mixture.of_seeds).sum(1)
    known = ~is_own & ~np.isnan(expected)
    expected = np.where(known, expected, nan)
    weight = np.where(known[:, None], noise.weight, nan)
    _, mean, _ = mean_and_error(x)
    difference = mean - mean[reference_of]
    difference[is_own] = nan
    worst = _worst_residuals(x[sharing], difference)
    return Contrasts(
        mean=difference,
        error=np.sqrt(expected + tuning),
        seeds=noise.seeds,
        noise=expected * noise.seeds,
        of_reference=of_reference[reference_of],
        reference_seeds=noise.seeds[reference_of],
        reference_noise=noise.own[reference_of],
        tuning=tuning,
        weight=weight,
        sd=np.sqrt(mixture.variance),
        freedom=mixture.freedom,
        noisy=noise.noisy(),
        paired=bool(paired),
        worst=np.where(certain, 0.0, worst),
        usual=noise.usual**0.5,
    )


def _finite(losses: ArrayLike) -> Array:
    """Return the losses, NaN where there is none: diverged runs have no place in a mean."""
    values = np.asarray(losses, np.float64)
    return np.where(np.isfinite(values), values, nan)


def _certain(losses: Array, sharing: Mask) -> Mask:
    """Return which points have no noise, as count models.

    On a grid, equal seeds are luck where another point has their value among others.
    """
    count, value, error = mean_and_error(losses)
    # Points without noise say nothing of each other.
    of_others = losses[sharing & (error > 0)]
    are_equal = (count > 1) & (error == 0)
    return are_equal & ~np.isin(value, of_others)


def _of_reference(noise: Noise, certain: Mask, *, is_single: bool) -> Array:
    """Return V_r/n_r of each point as a reference, (P,); NaN for a single seed.

    Only a single reference of several points has the factors of skewness and of unseen failures.
    """
    # A variance below that of the points is luck, but for a point that has none.
    least = np.where(certain, 0.0, noise.usual)
    with undefined_is_nan():
        variance = np.maximum(noise.own, least) / noise.seeds
        of_skewness = 1 + noise.skewness**2 / 3
        of_failures = 1 + MISSED / (noise.seeds - 1)
    if is_single:
        variance = variance * of_skewness * of_failures
    return variance


class _Mixture(NamedTuple):
    """Student's distributions of each contrast, one for each variance that is possible, (P, L)."""

    of_seeds: Array
    """v_p/n_p + V_r/n_r."""
    variance: Array
    """Var."""
    freedom: Array
    """ν."""


def _mixture(noise: Noise, of_reference: Array, reference_of: Indices, tuning: Array) -> _Mixture:
    """Return the distributions of the contrasts of each point with its reference."""
    with undefined_is_nan():
        of_point = noise.variance / noise.seeds[:, None]
        of_seeds = of_point + of_reference[reference_of][:, None]
        variance = of_seeds + tuning[:, None]
        # Satterthwaite: only estimated variances take degrees of freedom.
        unknown = of_point**2 / noise.freedom[:, None]
        unknown_reference = of_reference**2 / noise.own_freedom
        unknown += unknown_reference[reference_of][:, None]
        satterthwaite = variance**2 / unknown
        freedom = np.where(unknown > 0, satterthwaite, inf)
    return _Mixture(of_seeds, variance, freedom)


def _worst_residuals(losses: Array, difference: Array) -> Array:
    """Return the size of the residual of a loss that would make each difference smaller."""
    _, mean, _ = mean_and_error(losses)
    residuals = losses - mean[:, None]
    # Of all points: a tail is a matter of the task.
    residuals = residuals[~np.isnan(residuals)]
    largest = residuals.max(initial=0.0)
    least = residuals.min(initial=0.0)
    return np.where(difference < 0, largest, -least)


def pairs_pay(losses: Array, reference: int | Indices, asked: Mask) -> bool:
    """Return whether the seeds that all points have share more than pairing costs.

    Two arms on equal seeds are always paired.

    Args:
        losses: (P, S), as in `contrasts`.
        reference: that of each point, (P,).
        asked: the points that are compared, bool (P,).
    """
    x = _finite(losses)
    points = np.arange(len(x))
    reference = np.broadcast_to(reference, len(x))
    compared = asked & (points != reference)
    sharing = asked | np.isin(points, reference[compared])
    _, _, error = mean_and_error(x)
    varying = np.flatnonzero(sharing & (error > 0))
    known = ~np.isnan(x[varying])
    seeds = known.sum(1)
    x = x[:, known.all(0)]
    S = x.shape[1]
    # Of the seeds of the larger arm, not of those that both have.
    are_equal = EQUAL * seeds.max(initial=0) <= S
    are_arms = len(varying) == 2 and are_equal
    # Some points vary with other seeds only.
    _, _, error_of_shared = mean_and_error(x[varying])
    rows = varying[error_of_shared > 0]
    P = len(rows)
    varies = np.isin(points, rows)
    both_vary = varies & varies[reference]
    pairs = np.flatnonzero(compared & both_vary)
    if S < 3 or not len(pairs):
        return False
    if are_arms:
        return True
    # Are the effects shown? An F-test in units of each point's standard deviation.
    own = x[rows]
    deviation = own - own.mean(1, keepdims=True)
    z = deviation / deviation.std(1, ddof=1, keepdims=True)
    of_seed = z.mean(0)
    rest = ((z - of_seed) ** 2).sum() / (P - 1)
    freedom = (P - 1) * (S - 1)
    critical = special.fdtri(S - 1, freedom, SHOWN)
    of_seeds = P * (of_seed**2).sum()
    if not of_seeds > critical * rest:
        return False
    # Do they matter? The variance of a contrast with pairs, against the better one without.
    others = reference[pairs]
    differences = x[pairs] - x[others]
    with_pairs = differences.var(1, ddof=1)
    variance = x.var(1, ddof=1)
    without = variance[pairs] + variance[others]
    of_all_seeds = S * (error[pairs] ** 2 + error[others] ** 2)
    left = with_pairs / np.minimum(without, of_all_seeds)
    return bool(np.median(left) < PAYS)


def point_intervals(
    losses: ArrayLike,
    family: ArrayLike | None = None,
    reference: int = 0,
) -> Interval:
    """Return the mean of each point with its interval over seeds; losses (P, S).

    Where seeds share most of the variance, many points say no more of it than one.
    """
    x = _finite(losses)
    sharing = members(family, len(x))
    if pairs_pay(x, reference, sharing):
        return mean_interval(x)
    _, mean, error = mean_and_error(x)
    # Equal seeds are exact, also on a grid.
    rounding = np.where(error > 0, rounding_variance(x), 0.0)
    noise = seed_noise(x, sharing, rounding)
    seeds = np.maximum(noise.seeds, 1)
    sd = np.sqrt(noise.variance / seeds[:, None])
    freedom = noise.freedom[:, None]
    freedom = np.broadcast_to(freedom, sd.shape)
    half = half_width(noise.weight, sd, freedom, LEVEL)
    return Interval(mean, mean - half, mean + half)


def unfair(architectures: Sequence[str], tuned: Sequence[bool], reference: int) -> Mask:
    """Return which points have another architecture than the reference, where one is not tuned.

    One learning rate is good for some architectures and poor for others, so that the difference is
    none of the architectures, and gets no verdict.
    """
    is_other = np.asarray(architectures) != architectures[reference]
    both_tuned = np.asarray(tuned, bool) & tuned[reference]
    return is_other & ~both_tuned


def holm(p: ArrayLike) -> Array:
    """Return Holm's adjusted p-values. NaN stands for no test: it stays NaN and is not counted."""
    p = np.asarray(p, dtype=np.float64)
    # Ranks among those that were tested only.
    tested = np.flatnonzero(~np.isnan(p))
    by_size = np.argsort(p[tested], kind="stable")
    order = tested[by_size]
    left = np.arange(len(order), 0, -1)
    # A later hypothesis is not rejected before an earlier one.
    steps = np.maximum.accumulate(left * p[order])
    adjusted = np.full_like(p, nan)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def rank_intervals(
    losses: ArrayLike,
    tuning_sd: ArrayLike = 0.0,
    family: ArrayLike | None = None,
    reference: int = 0,
) -> tuple[Array, Array]:
    """Return the ends of a 95 % interval of the rank of each point.

    The least share of runs that diverged or solved nothing has rank 1; at equal shares, the least
    loss. Different shares are compared by Fisher's exact test.

    Args:
        losses: (P, S) in nats; NaN for a run that is missing, infinity for one that counts.
        tuning_sd: standard deviation in nats of the loss over repetitions of the tuning, (P,).
        family: the points that share their noise, bool (P,); None: all.
        reference: that of `pairs_pay`.

    Returns:
        Low and high ranks, (P,) each; NaN for points with fewer than two runs.
    """
    table = np.asarray(losses, np.float64)
    known = ~np.isnan(table)
    runs = known.sum(1)
    # Runs that diverged or solved nothing.
    infinite = np.isposinf(table).sum(1)
    lost = infinite / np.maximum(runs, 1)
    x = _finite(table)
    sharing = members(family, len(x))
    share: ArrayLike = 1.0
    rounding = rounding_variance(x)
    if pairs_pay(x, reference, sharing):
        x, share = without_seed_effects(x, sharing)
    noise = seed_noise(x, sharing, rounding, share)
    _, mean, _ = mean_and_error(x)
    tau = np.broadcast_to(tuning_sd, len(x))
    of_seeds, unknown = _rank_noise(noise)
    has_runs = runs > 0
    low, high = np.full((2, len(x)), nan)
    has_place = (lost == 1) | ~np.isnan(of_seeds)
    for point in np.flatnonzero(has_place & (runs > 1)):
        difference = mean - mean[point]
        with undefined_is_nan():
            variance = of_seeds + of_seeds[point] + tau**2 + tau[point] ** 2
            freedom = variance**2 / (unknown + unknown[point])
            size = np.abs(difference) / np.sqrt(variance)
        p = 2 * special.stdtr(np.minimum(freedom, 1e6), -size)
        is_equal = lost == lost[point]
        if not is_equal.all():
            of_counts = counts(table, np.full(len(x), point))
            p = np.where(is_equal, p, of_counts.p)
        # No comparison with itself.
        p[point] = nan
        p[~has_runs] = nan
        shown = holm(p) < 1 - LEVEL
        # At equal shares, the mean decides.
        more = np.where(is_equal, difference, lost - lost[point])
        # Each point that is shown to be better stands before it.
        low[point] = 1 + (more[shown] < 0).sum()
        high[point] = has_runs.sum() - (more[shown] > 0).sum()
    return low, high


def _rank_noise(noise: Noise) -> tuple[Array, Array]:
    """Return v/n of each point, from the mean of 1/v, and its square over the freedom."""
    with undefined_is_nan():
        precision = (noise.weight / noise.variance).sum(1)
        square = (noise.weight / noise.variance**2).sum(1)
        spread = square - precision**2
        # A variance that is sure has the degrees of freedom of the normal.
        is_unsure = spread > 1e-9 * precision**2
        of_posterior = 2 * precision**2 / spread
        has_posterior = np.isinf(noise.freedom) & is_unsure
        freedom = np.where(has_posterior, of_posterior, noise.freedom)
        of_seeds = 1 / precision / noise.seeds
        return of_seeds, of_seeds**2 / freedom
