"""Contrasts: pairs, the tuning, seeds of the reference alone, Holm; rank intervals."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from lmzoo.lab.statistics.contrasts import (
    PAYS,
    SHOWN,
    contrasts,
    holm,
    pairs_pay,
    point_intervals,
    rank_intervals,
    unfair,
)
from tests.cases import rows

RNG = np.random.default_rng
NAN = np.nan


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_interval_is_the_inverse_of_the_test(level):
    found = contrasts(RNG(5).normal(size=(9, 4)), 0)
    half = found.half(level)
    outside = 2 * found.tail(half)
    assert np.allclose(outside[1:], 1 - level, rtol=1e-3)


@pytest.fixture
def plain():
    """Losses of a reference that varies three times as much as the points."""
    x = RNG(7).normal(size=(6, 12))
    x[0] *= 3
    return x


@pytest.fixture
def skewed(plain):
    """The same with skewed numbers of the reference, of equal mean and variance."""
    reference = np.exp(2 * plain[0])
    reference -= reference.mean()
    reference *= plain[0].std() / reference.std()
    return np.concatenate([[reference], plain[1:]])


def test_the_variance_of_a_reference_has_factors_of_skewness_and_of_unseen_failures(skewed):
    reference = skewed[0]
    of_seeds = reference.var(ddof=1) / 12
    of_skewness = 1 + stats.skew(reference) ** 2 / 3
    of_failures = 1 + 0.5 / 11
    found = contrasts(skewed, 0).of_reference[1]
    assert found == pytest.approx(of_seeds * of_skewness * of_failures)


def test_skewed_numbers_of_a_reference_widen_the_intervals(plain, skewed):
    narrow = contrasts(plain, 0).half()
    wide = contrasts(skewed, 0).half()
    assert np.all(wide[1:] > narrow[1:])


OWN = 0.1 * RNG(8).normal(size=(8, 8))
COMMON = RNG(9).normal(size=8)
"""What the points share at each seed."""


@pytest.mark.parametrize(("factor", "pays"), [(0, False), (0.1, False), (1, True)])
def test_pairs_are_used_only_where_seeds_share_most_of_the_variance(factor, pays):
    assert contrasts(OWN + factor * COMMON, 0).paired == pays


def test_pairs_are_not_used_if_the_user_says_so():
    assert not contrasts(OWN + COMMON, 0, paired=False).paired


def test_pairs_take_the_effects_of_the_seeds_out_of_the_interval():
    with_pairs = contrasts(OWN + COMMON, 0).half()
    without = contrasts(OWN + COMMON, 0, paired=False).half()
    assert with_pairs[1] < 0.5 * without[1]


def test_seeds_of_the_reference_alone_say_nothing_of_a_pair():
    with_pairs = contrasts(OWN + COMMON, 0).half()
    more = np.full((8, 40), np.nan)
    more[:, :8] = OWN + COMMON
    more[0, 8:] = 100.0
    found = contrasts(more, 0, paired=True).half()
    assert np.allclose(found, with_pairs, equal_nan=True)


@pytest.mark.parametrize("step", [0.01, 1 / 64, 250.0, 1e-9])
@pytest.mark.parametrize("points", [2, 5])
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("precision", [np.float64, np.float32])
def test_equal_differences_on_a_grid_are_not_exact(points, paired, step, precision):
    """Three equal differences of one step come from rounding in 1 of 70 pairs without an effect."""
    x = np.full((points, 3), 32)
    if paired:
        x += [0, 3, -3]
    x[1:] -= 1
    # Means of batches differ in the last digit.
    rounding = RNG(1).choice([0, np.finfo(precision).eps], x.shape)
    found = contrasts(step * x * (1 + rounding), 0, paired=paired)
    of_rounding = step * np.sqrt(2 / 12 / 3)
    assert np.all(found.error[1:] > 0.99 * of_rounding)
    assert np.all(found.p[1:] > 0.001)


def test_a_reference_without_noise_has_none_of_the_points():
    x = RNG(10).normal(size=(8, 5))
    x[0] = 0.5
    found = contrasts(x, 0)
    # The seven points share a variance: 7 (5 − 1) degrees of freedom.
    of_point = stats.t.isf(0.025, 28) / 5**0.5
    assert np.all(found.of_reference < 1e-3)
    assert found.half()[1] < 1.2 * of_point


@pytest.mark.parametrize("seeds", [4, 8])
def test_pairs_pay_from_the_correlation_that_the_f_test_and_the_variance_ask_for(seeds):
    """Three points with correlation r have F = (1 + 2r) / (1 - r), of S - 1 and 2(S - 1)."""
    f = stats.f.ppf(SHOWN, seeds - 1, 2 * (seeds - 1))
    least = max((f - 1) / (f + 2), 1 - PAYS)
    assert not all_pay(correlated(seeds, least - 1e-4))
    assert all_pay(correlated(seeds, least + 1e-4))


def correlated(seeds, r):
    """Return three points with this correlation at each two of them."""
    columns = np.column_stack([np.ones(seeds), RNG(1).normal(size=(seeds, 3))])
    basis, _ = np.linalg.qr(columns)
    z = basis[:, 1:]  # without correlation, and with mean 0
    correlations = (1 - r) * np.eye(3) + r
    return np.linalg.cholesky(correlations) @ z.T


def all_pay(x):
    """Return whether pairs pay if all points are compared with the first."""
    points = np.arange(len(x))
    return pairs_pay(x, 0 * points, points > 0)


@pytest.mark.parametrize(("missing", "pays"), [(0, True), (3, True), (4, False), (10, False)])
def test_two_arms_on_equal_seeds_are_paired(missing, pays):
    x = RNG(1).normal(size=(2, 12))
    x[1, 12 - missing :] = np.nan
    assert all_pay(x) == pays


def test_a_point_that_varies_with_other_seeds_only_decides_no_pairs():
    x = np.array([[0, 1, 2, 3], [0.1, 0.1, 0.1, 0.2], [1, 2, 4, NAN]])
    assert not all_pay(x)


def test_points_outside_the_family_and_their_reference_change_no_number_inside():
    """Five points share the noise of those that vary; the reference of all five has its own."""
    sd = np.array([3, 1, 1, 1, 1, 50, 50, 50])
    x = sd[:, None] * RNG(4).normal(size=(8, 5))
    references = np.array([0, 0, 0, 0, 0, 6, 7, 0])
    inside = contrasts(x, references, family=np.arange(8) < 5)
    alone = contrasts(x[:5], 0)
    assert inside.half()[:5] == pytest.approx(alone.half(), nan_ok=True)
    for name in ("mean", "error", "p", "of_reference"):
        found = getattr(inside, name)[:5]
        assert found == pytest.approx(getattr(alone, name), nan_ok=True)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_closes_bonferronis_test_and_nan_is_no_test(p):
    every = range(len(p))
    closed = np.zeros(len(p))
    for size in every:
        for tests in combinations(every, size + 1):
            of_all = len(tests) * min(p[test] for test in tests)
            for test in tests:
                closed[test] = max(closed[test], of_all)
    expected = np.append(NAN, np.minimum(closed, 1))
    assert holm([NAN, *p]) == pytest.approx(expected, nan_ok=True)


def test_a_point_is_unfair_if_its_other_architecture_is_not_tuned():
    tuned = [True, False, False, True]
    found = unfair(["a", "a", "b", "b"], tuned, 0)
    assert found.tolist() == [False, False, True, False]


def test_other_architectures_are_unfair_if_the_reference_is_not_tuned():
    tuned = [False, True, False, True]
    found = unfair(["a", "a", "b", "b"], tuned, 0)
    assert found.tolist() == [False, False, True, True]


finite_losses = st.floats(-10, 10).map(lambda x: round(x, 3))
losses = st.one_of(finite_losses, st.sampled_from([np.nan, np.inf]))
tables = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=losses)


@settings(max_examples=50)
@given(tables)
@example(np.array(rows("lab/statistics/cases.toml", "sparse")))
def test_a_rank_has_an_interval_from_two_seeds_on(table):
    low, _ = rank_intervals(table)
    finite = np.isfinite(table)
    counted = np.isposinf(table).sum(1)
    is_known = (finite.sum(1) > 1) | ((counted > 1) & ~finite.any(1))
    assert (np.isnan(low) == ~is_known).all()


@settings(max_examples=50)
@given(arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(2, 6)), elements=finite_losses))
def test_the_interval_includes_the_rank(table):
    low, high = rank_intervals(table)
    means = table.mean(1).round(9)
    assert (low <= stats.rankdata(means, method="max")).all()
    assert (stats.rankdata(means, method="min") <= high).all()


@pytest.mark.parametrize("common", [0.0, 9.0])
def test_the_order_of_points_and_seeds_does_not_matter(common):
    """Also where all points but one share the effects of the seeds."""
    values = RNG(9).normal(size=(7, 4)) + np.arange(7)[:, None]
    values[:6] += common * RNG(3).normal(size=4)
    order = np.roll(np.arange(7), 1)
    moved = values[order][:, RNG(2).permutation(4)]
    ranks = np.array(rank_intervals(values))[:, order]
    assert np.array_equal(rank_intervals(moved, reference=1), ranks)
    # With another reference, other pairs pay.
    assert np.array_equal(rank_intervals(moved), ranks) == (common == 0)
    lows = point_intervals(values).low[order]
    assert point_intervals(moved, reference=1).low == pytest.approx(lows)


def test_the_noise_of_rows_outside_the_family_changes_no_rank_inside():
    values = RNG(4).normal(size=(8, 3)) + np.arange(8)[:, None]
    values[6:] += 1e6
    noisy = values.copy()
    noisy[6:] += [0.0, 1e4, 2e4]
    family = np.arange(8) < 6
    quiet = np.array(rank_intervals(values, family=family))
    beside_noise = np.array(rank_intervals(noisy, family=family))
    with_noise = np.array(rank_intervals(noisy))
    assert np.array_equal(quiet[:, :6], beside_noise[:, :6])
    assert not np.array_equal(quiet[:, :6], with_noise[:, :6])


@pytest.mark.parametrize(
    ("points", "seeds", "studies", "least"),
    [(12, 3, 300, 0.93), pytest.param(60, 5, 20, 0.8, marks=pytest.mark.slow)],
)
def test_the_interval_of_the_worst_point_holds_its_rank(points, seeds, studies, least):
    """A bootstrap over three seeds holds it in 79 %."""
    rng = RNG(5)
    means = 0.5 * np.arange(points)[:, None]
    rank = np.arange(1, points + 1)
    held = np.zeros(points)
    for _ in range(studies):
        noise = rng.normal(size=(points, seeds))
        low, high = rank_intervals(means + noise)
        held += (low <= rank) & (rank <= high)
    assert held.min() / studies >= least
