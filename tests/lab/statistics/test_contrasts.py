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
from tests.cases import cases, rows
from tests.lab.statistics.normal_draws import normal

RNG = np.random.default_rng
NAN = np.nan
CASES = "lab/statistics/cases.toml"


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_interval_is_the_inverse_of_the_test(level):
    found = contrasts(normal(5, 9, 4), 0)
    half = found.half(level)
    outside = 2 * found.tail(half)
    np.testing.assert_allclose(outside[1:], 1 - level, rtol=1e-3)


@pytest.fixture
def plain():
    """Losses of a reference that varies three times as much as the points."""
    x = normal(7, 6, 12)
    x[0] *= 3
    return x


@pytest.fixture
def skewed(plain):
    """The same with skewed numbers of the reference, of equal mean and variance."""
    x = plain.copy()
    # The exponential of normal numbers is skewed to the right.
    reference = np.exp(2 * plain[0])
    reference -= reference.mean()
    reference /= reference.std()
    x[0] = plain[0].std() * reference
    return x


def test_the_variance_of_a_reference_has_factors_of_skewness_and_of_unseen_failures(skewed):
    reference = skewed[0]
    of_seeds = reference.var(ddof=1) / 12
    skewness = stats.skew(reference)
    of_skewness = 1 + skewness**2 / 3
    of_failures = 1 + 0.5 / 11
    expected = of_seeds * of_skewness * of_failures
    found = contrasts(skewed, 0)
    assert found.of_reference[1] == pytest.approx(expected)


def test_skewed_numbers_of_a_reference_widen_the_intervals(plain, skewed):
    narrow = contrasts(plain, 0).half()
    wide = contrasts(skewed, 0).half()
    assert (wide[1:] > narrow[1:]).all()


# A tenth of what the seeds share.
OWN = 0.1 * normal(8, 8, 8)
COMMON = normal(9, 8)
"""What the points share at each seed."""
SHARED = OWN + COMMON


@cases(CASES, "shared", "factor, pays")
def test_pairs_are_used_only_where_seeds_share_most_of_the_variance(factor, pays):
    found = contrasts(OWN + factor * COMMON, 0)
    assert found.paired == pays


def test_pairs_are_not_used_if_the_user_says_so():
    found = contrasts(SHARED, 0, paired=False)
    assert not found.paired


def test_pairs_take_the_effects_of_the_seeds_out_of_the_interval():
    with_pairs = contrasts(SHARED, 0).half()
    without = contrasts(SHARED, 0, paired=False).half()
    assert with_pairs[1] < 0.5 * without[1]


def test_seeds_of_the_reference_alone_say_nothing_of_a_pair():
    more = np.full((8, 40), NAN)
    more[:, :8] = SHARED
    # Far from all other losses.
    more[0, 8:] = 100.0
    found = contrasts(more, 0, paired=True)
    expected = contrasts(SHARED, 0)
    np.testing.assert_allclose(found.half(), expected.half(), rtol=1e-5, atol=1e-8)


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
    last_digit = np.finfo(precision).eps
    rounding = RNG(1).choice([0, last_digit], x.shape)
    losses = step * x * (1 + rounding)
    found = contrasts(losses, 0, paired=paired)
    # A rounded number has the variance step² / 12: a difference has two of them, a mean a third.
    of_rounding = step * np.sqrt(2 / 12 / 3)
    assert found.error[1:].min() > 0.99 * of_rounding
    assert found.p[1:].min() > 0.001


def test_a_reference_without_noise_has_none_of_the_points():
    x = normal(10, 8, 5)
    # Without noise, as a model of counts.
    x[0] = 0.5
    found = contrasts(x, 0)
    # The seven points share a variance: 7 (5 − 1) degrees of freedom.
    quantile = stats.t.isf(0.025, 28)
    of_point = quantile / 5**0.5
    assert (found.of_reference < 1e-3).all()
    assert found.half()[1] < 1.2 * of_point


@pytest.mark.parametrize("seeds", [4, 8])
def test_pairs_pay_from_the_correlation_that_the_f_test_and_the_variance_ask_for(seeds):
    """Three points with correlation r have F = (1 + 2r) / (1 - r), of S - 1 and 2(S - 1)."""
    freedom = seeds - 1
    f = stats.f.ppf(SHOWN, freedom, 2 * freedom)
    by_test = (f - 1) / (f + 2)
    least = max(by_test, 1 - PAYS)
    below = correlated(seeds, least - 1e-4)
    above = correlated(seeds, least + 1e-4)
    assert not all_pay(below)
    assert all_pay(above)


def correlated(seeds, r):
    """Return three points with this correlation at each two of them."""
    # A constant, and three random columns.
    columns = np.ones((seeds, 4))
    columns[:, 1:] = normal(1, seeds, 3)
    basis, _ = np.linalg.qr(columns)
    # Orthogonal to a constant: without correlation, and with mean 0.
    z = basis[:, 1:]
    correlations = (1 - r) * np.eye(3) + r
    root = np.linalg.cholesky(correlations)
    return root @ z.T


def all_pay(x):
    """Return whether pairs pay if all points are compared with the first."""
    points = np.arange(len(x))
    return pairs_pay(x, 0 * points, points > 0)


@cases(CASES, "two_arms", "missing, pays")
def test_two_arms_on_equal_seeds_are_paired(missing, pays):
    x = normal(1, 2, 12)
    x[1, 12 - missing :] = NAN
    assert all_pay(x) == pays


def test_a_point_that_varies_with_other_seeds_only_decides_no_pairs():
    x = np.array(rows(CASES, "other_seeds"))
    assert not all_pay(x)


def test_points_outside_the_family_and_their_reference_change_no_number_inside():
    """Five points share the noise of those that vary; the reference of all five has its own."""
    x = normal(4, 8, 5)
    x[0] *= 3
    # Rows outside of the family; two are compared with others of them.
    x[5:] *= 50
    references = np.zeros(8, int)
    references[5:7] = [6, 7]
    family = np.arange(8) < 5
    inside = contrasts(x, references, family=family)
    alone = contrasts(x[:5], 0)
    half = inside.half()
    assert half[:5] == pytest.approx(alone.half(), nan_ok=True)
    for name in ("mean", "error", "p", "of_reference"):
        found = getattr(inside, name)
        expected = getattr(alone, name)
        assert found[:5] == pytest.approx(expected, nan_ok=True)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_closes_bonferronis_test_and_nan_is_no_test(p):
    every = range(len(p))
    closed = np.zeros(len(p))
    for size in every:
        for tests in combinations(every, size + 1):
            least = min(p[test] for test in tests)
            of_all = len(tests) * least
            for test in tests:
                closed[test] = max(closed[test], of_all)
    no_test, *adjusted = holm([NAN] + p)
    assert adjusted == pytest.approx(np.minimum(closed, 1))
    assert np.isnan(no_test)


@cases(CASES, "unfair", "tuned, expected")
def test_untuned_points_and_those_beside_an_untuned_reference_are_unfair(tuned, expected):
    """Only those of another architecture than the reference."""
    found = unfair(["a", "a", "b", "b"], tuned, 0)
    assert found.tolist() == expected


finite_losses = st.floats(-10, 10).map(lambda x: round(x, 3))
losses = st.one_of(finite_losses, st.sampled_from([np.nan, np.inf]))
shapes = array_shapes(min_dims=2, max_dims=2, max_side=6)
shapes_of_two_seeds = st.tuples(st.integers(1, 6), st.integers(2, 6))


@settings(max_examples=50)
@given(arrays(np.float64, shapes, elements=losses))
@example(np.array(rows(CASES, "sparse")))
def test_a_rank_has_an_interval_from_two_seeds_on(table):
    low, _ = rank_intervals(table)
    finite = np.isfinite(table).sum(1)
    diverged = np.isposinf(table).sum(1)
    all_diverged = (finite == 0) & (diverged > 1)
    is_known = (finite > 1) | all_diverged
    assert (~np.isnan(low)).tolist() == is_known.tolist()


@settings(max_examples=50)
@given(arrays(np.float64, shapes_of_two_seeds, elements=finite_losses))
def test_the_interval_includes_the_rank(table):
    low, high = rank_intervals(table)
    means = table.mean(1).round(9)
    last = stats.rankdata(means, method="max")
    first = stats.rankdata(means, method="min")
    assert (low <= last).all()
    assert (first <= high).all()


def rising(seed, points, seeds):
    """Return noise around the means 0, 1, 2 …"""
    means = np.arange(points)
    return normal(seed, points, seeds) + means[:, None]


@pytest.mark.parametrize("common", [0.0, 9.0])
def test_the_order_of_points_and_seeds_does_not_matter(common):
    """Also where all points but one share the effects of the seeds."""
    values = rising(9, 7, 4)
    # The last point does not share the effects of the seeds.
    values[:6] += common * normal(3, 4)
    order = np.roll(np.arange(7), 1)
    order_of_seeds = RNG(2).permutation(4)
    moved = values[order][:, order_of_seeds]
    ranks = np.array(rank_intervals(values))[:, order]
    same_reference = rank_intervals(moved, reference=1)
    assert np.array_equal(same_reference, ranks)
    # With another reference, other pairs pay.
    other_reference = rank_intervals(moved)
    assert np.array_equal(other_reference, ranks) == (common == 0)
    expected = point_intervals(values)
    found = point_intervals(moved, reference=1)
    assert found.low == pytest.approx(expected.low[order])


def test_the_noise_of_rows_outside_the_family_changes_no_rank_inside():
    values = rising(4, 8, 3)
    # Two more rows, far from the family.
    values[6:] += 1e6
    noisy = values.copy()
    noisy[6:] += [0.0, 1e4, 2e4]
    family = np.arange(8) < 6
    quiet = ranks_of_six(values, family=family)
    assert ranks_of_six(noisy, family=family) == quiet
    assert ranks_of_six(noisy) != quiet


def ranks_of_six(values, **options):
    """Return the intervals of the ranks of the first six points."""
    low, high = rank_intervals(values, **options)
    return low[:6].tolist(), high[:6].tolist()


def test_the_choice_of_both_settings_widens_the_intervals_of_ranks():
    # The second point is ten standard deviations of a seed above the first one.
    values = 0.01 * rising(6, 2, 5) + [[0.0], [0.09]]
    sure = rank_intervals(values)
    assert np.array(sure).tolist() == [[1, 2], [1, 2]]
    # One and a half standard errors of two choices.
    open_choice = rank_intervals(values, np.full(2, 0.05))
    assert np.array(open_choice).tolist() == [[1, 1], [2, 2]]


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
    share = held / studies
    assert share.min() >= least
