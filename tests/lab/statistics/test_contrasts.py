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

RNG = np.random.default_rng
NAN = np.nan


def test_the_interval_is_the_inverse_of_the_test():
    found = contrasts(RNG(5).normal(size=(9, 4)), 0)
    for level in (0.5, 0.95, 0.999):
        outside = 2 * found.tail(found.half(level))
        assert np.allclose(outside[1:], 1 - level, rtol=1e-3)


def test_skewed_numbers_of_a_reference_widen_the_intervals():
    x = RNG(7).normal(size=(6, 12))
    x[0] *= 3
    plain = contrasts(x, 0)
    reference = np.exp(2 * x[0])
    reference = (reference - reference.mean()) * x[0].std() / reference.std()
    x[0] = reference
    found = contrasts(x, 0)
    of_seeds = reference.var(ddof=1) / 12
    of_skewness = 1 + stats.skew(reference) ** 2 / 3
    of_failures = 1 + 0.5 / 11
    assert found.of_reference[1] == pytest.approx(of_seeds * of_skewness * of_failures)
    assert np.all(found.half()[1:] > plain.half()[1:])


def test_pairs_are_used_only_where_seeds_share_most_of_the_variance():
    own = 0.1 * RNG(8).normal(size=(8, 8))
    common = RNG(9).normal(size=8)
    assert not contrasts(own, 0).paired
    assert not contrasts(own + 0.1 * common, 0).paired
    assert contrasts(own + common, 0).paired
    assert not contrasts(own + common, 0, paired=False).paired


def test_pairs_take_the_effects_of_the_seeds_out_of_the_interval():
    x = 0.1 * RNG(8).normal(size=(8, 8)) + RNG(9).normal(size=8)
    with_pairs = contrasts(x, 0).half()
    assert with_pairs[1] < 0.5 * contrasts(x, 0, paired=False).half()[1]
    more = np.full((8, 40), np.nan)
    more[:, :8] = x
    more[0, 8:] = 100.0  # seeds of the reference alone say nothing of a pair
    assert np.allclose(contrasts(more, 0, paired=True).half(), with_pairs, equal_nan=True)


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
    x = step * x
    x = x * (1 + RNG(1).choice([0, np.finfo(precision).eps], x.shape))  # means of batches
    found = contrasts(x, 0, paired=paired)
    assert np.all(found.error[1:] > 0.99 * step * np.sqrt(2 / 12 / 3))
    assert np.all(found.p[1:] > 0.001)


def test_a_reference_without_noise_has_none_of_the_points():
    x = RNG(10).normal(size=(8, 5))
    x[0] = 0.5
    found = contrasts(x, 0)
    assert np.all(found.of_reference < 1e-3)
    assert found.half()[1] < 1.2 * stats.t.isf(0.025, 28) / 5**0.5


@pytest.mark.parametrize("seeds", [4, 8])
def test_pairs_pay_from_the_correlation_that_the_f_test_and_the_variance_ask_for(seeds):
    """Three points with correlation r have F = (1 + 2r) / (1 - r), of S - 1 and 2(S - 1)."""
    columns = np.column_stack([np.ones(seeds), RNG(1).normal(size=(seeds, 3))])
    z = np.linalg.qr(columns)[0][:, 1:]  # without correlation, and with mean 0
    f = stats.f.ppf(SHOWN, seeds - 1, 2 * (seeds - 1))
    least = max((f - 1) / (f + 2), 1 - PAYS)
    for r, pays in ((least - 1e-4, False), (least + 1e-4, True)):
        correlations = (1 - r) * np.eye(3) + r
        x = np.linalg.cholesky(correlations) @ z.T
        assert pairs_pay(x, np.zeros(3, int), np.array([False, True, True])) == pays


def test_two_arms_on_equal_seeds_are_paired():
    x = RNG(1).normal(size=(2, 12))
    for missing, pays in ((0, True), (3, True), (4, False), (10, False)):
        x[1, 12 - missing :] = np.nan
        assert pairs_pay(x, np.zeros(2, int), np.array([False, True])) == pays


def test_a_point_that_varies_with_other_seeds_only_decides_no_pairs():
    x = np.array([[0, 1, 2, 3], [0.1, 0.1, 0.1, 0.2], [1, 2, 4, NAN]])
    assert not pairs_pay(x, np.zeros(3, int), np.array([False, True, True]))


def test_points_outside_the_family_and_their_reference_change_no_number_inside():
    """Five points share the noise of those that vary; the reference of all five has its own."""
    x = RNG(4).normal(size=(8, 5)) * np.array([3, 1, 1, 1, 1, 50, 50, 50])[:, None]
    references = np.array([0, 0, 0, 0, 0, 6, 7, 0])
    inside = contrasts(x, references, family=np.arange(8) < 5)
    alone = contrasts(x[:5], 0)
    for name in ("mean", "error", "p", "of_reference"):
        assert getattr(inside, name)[:5] == pytest.approx(getattr(alone, name), nan_ok=True)
    assert inside.half()[:5] == pytest.approx(alone.half(), nan_ok=True)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_closes_bonferronis_test_and_nan_is_no_test(p):
    every = range(len(p))
    closed = [0.0] * len(p)
    for size in every:
        for tests in combinations(every, size + 1):
            of_all = len(tests) * min(p[test] for test in tests)
            for test in tests:
                closed[test] = max(closed[test], of_all)
    assert holm([NAN, *p]) == pytest.approx([NAN, *np.minimum(closed, 1)], nan_ok=True)


def test_a_point_is_unfair_if_another_architecture_or_the_reference_is_not_tuned():
    names = ["a", "a", "b", "b"]
    assert unfair(names, [True, False, False, True], 0).tolist() == [False, False, True, False]
    assert unfair(names, [False, True, False, True], 0).tolist() == [False, False, True, True]


losses = st.one_of(st.floats(-10, 10).map(lambda x: round(x, 3)), st.sampled_from([np.nan, np.inf]))


SPARSE = np.array(
    [
        [1, NAN, NAN, 0, 0, 0],
        [0, 0, NAN, 0, 0, 1],
        [NAN, 0, 1, NAN, NAN, NAN],
        [0, 0, 0, 0, 0, 0],
        [0, NAN, NAN, 0, 0, 1],
        [0, NAN, NAN, 0, 0, 1.0],
    ]
)
"""A point without two shared seeds takes another point's shared seed with it."""


@settings(max_examples=50)
@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=losses))
@example(SPARSE)
def test_the_interval_includes_the_rank_and_needs_two_seeds(table):
    low, high = rank_intervals(table)
    finite = np.isfinite(table)
    counted = np.isposinf(table).sum(1)
    is_known = (finite.sum(1) > 1) | ((counted > 1) & ~finite.any(1))
    assert (np.isnan(low) == ~is_known).all()
    complete = finite.all(1)
    if complete.all() and table.shape[1] > 1:
        means = table.mean(1).round(9)
        assert (low <= stats.rankdata(means, method="max")).all()
        assert (stats.rankdata(means, method="min") <= high).all()


@pytest.mark.parametrize("common", [0.0, 9.0])
def test_the_order_of_points_and_seeds_does_not_matter(common):
    """Also where all points but one share the effects of the seeds."""
    values = RNG(9).normal(size=(7, 4)) + np.arange(7)[:, None]
    values[:6] += common * RNG(3).normal(size=4)
    rows = np.roll(np.arange(7), 1)
    moved = values[rows][:, RNG(2).permutation(4)]
    ranks = np.array(rank_intervals(values))[:, rows]
    assert np.array_equal(rank_intervals(moved, reference=1), ranks)
    assert np.array_equal(rank_intervals(moved), ranks) == (common == 0)
    lows = point_intervals(values).low[rows]
    assert point_intervals(moved, reference=1).low == pytest.approx(lows)


def test_the_noise_of_rows_outside_the_family_changes_no_rank_inside():
    values = RNG(4).normal(size=(8, 3)) + np.arange(8)[:, None]
    family = np.arange(8) < 6
    values[~family] += 1e6
    noisy = values + np.where(family, 0.0, 1e4)[:, None] * [0.0, 1.0, 2.0]
    quiet = np.array(rank_intervals(values, family=family))[:, family]
    beside_noise = np.array(rank_intervals(noisy, family=family))[:, family]
    assert np.array_equal(quiet, beside_noise)
    assert not np.array_equal(quiet, np.array(rank_intervals(noisy))[:, family])


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
        low, high = rank_intervals(means + rng.normal(size=(points, seeds)))
        held += (low <= rank) & (rank <= high)
    assert held.min() / studies >= least
