"""Intervals, differences, Holm and rank intervals: equal to scipy's, with right coverage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from lmzoo.analysis.statistics import (
    bootstrap_scale,
    holm,
    mean_interval,
    paired_difference,
    rank_intervals,
    ranks,
)

RNG = np.random.default_rng
untimed = settings(deadline=None, max_examples=50)  # no test fails on a busy machine
finite = st.floats(-10, 10).map(lambda x: round(x, 3))
sometimes_missing = st.one_of(finite, st.just(float("nan")))
tables = arrays(
    np.float64, array_shapes(min_dims=2, max_dims=2, max_side=5), elements=sometimes_missing
)


def test_the_interval_equals_scipys():
    x = RNG(0).normal(3, 0.1, 7)
    ours = mean_interval(x)
    low, high = stats.t.interval(0.95, 6, loc=x.mean(), scale=stats.sem(x))
    assert np.allclose([ours.mean, ours.low, ours.high], [x.mean(), low, high], rtol=1e-12)


@untimed
@given(
    arrays(np.float64, array_shapes(max_dims=3, max_side=5), elements=st.floats(-2, 2).map(round))
)
def test_ranks_equal_scipys(values):
    values[values == 2] = np.inf  # the loss of a model that gives a token probability 0
    assert np.array_equal(ranks(values), stats.rankdata(values, method="min", axis=-1))


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_a_scaled_bootstrap_of_a_mean_is_as_wide_as_the_t_interval(level):
    n = np.array([2.0, 3.0, 5.0, 40.0])
    bootstrap = stats.norm.interval(level)[1] * np.sqrt((n - 1) / n)  # times s / √n
    assert np.allclose(bootstrap_scale(n, level) * bootstrap, stats.t.interval(level, n - 1)[1])
    assert bootstrap_scale(1.0, level) == 1


def test_the_difference_equals_scipys_paired_test():
    x, y = RNG(1).normal(3, 0.1, (2, 6))
    theirs = stats.ttest_rel(x, y)
    interval = theirs.confidence_interval(0.95)
    ours = paired_difference(x, y)
    assert np.isclose(ours.p, theirs.pvalue, rtol=1e-10)
    assert np.allclose([ours.low, ours.high], [interval.low, interval.high], rtol=1e-10)
    for first, second in ((x, y), (y, x)):
        # P(δ < 0) under a flat prior is one minus the one-sided p.
        lower = stats.ttest_rel(first, second, alternative="less").pvalue
        assert np.isclose(paired_difference(first, second).better, 1 - lower, rtol=1e-10)


@untimed
@given(tables)
def test_a_missing_value_equals_a_seed_that_was_not_run(table):
    ours = mean_interval(table)
    for i, row in enumerate(table):
        measured = row[~np.isnan(row)]
        alone = mean_interval(measured)
        assert np.allclose([c[i] for c in ours], [*alone], equal_nan=True, atol=1e-9)
        assert np.isnan(ours.mean[i]) == (len(measured) == 0)
        assert np.isnan(ours.low[i]) == (len(measured) < 2)


@untimed
@given(tables)
def test_the_difference_uses_the_common_seeds(table):
    reference = table[0]
    ours = paired_difference(table, reference)
    for i, row in enumerate(table):
        common = ~np.isnan(row) & ~np.isnan(reference)
        alone = paired_difference(row[common], reference[common])
        assert np.allclose([c[i] for c in ours], [*alone], equal_nan=True, atol=1e-9)
        differences = row[common] - reference[common]
        assert np.isnan(ours.p[i]) == (len(set(differences)) < 2)


def test_a_point_does_not_differ_from_itself():
    x = RNG(2).normal(size=5)
    ours = paired_difference(x, x)
    assert np.array_equal([*ours], [0, 0, 0, np.nan, np.nan], equal_nan=True)


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_equal_values_give_an_exact_difference_without_a_test(seeds):
    x = np.full(seeds, 2.1)  # the sum of ten times 2.1 is not exactly 21
    assert [*mean_interval(x)] == [2.1, 2.1, 2.1]
    ours = paired_difference(x, x - 0.7)
    assert ours.low == ours.mean == ours.high == 2.1 - (2.1 - 0.7)
    assert np.isnan(ours.p)
    assert [paired_difference(x, x - 0.7).better, paired_difference(x - 0.7, x).better] == [0, 1]


def test_a_point_with_equal_values_is_tested_against_a_varying_one():
    x, y = RNG(6).normal(3, 0.1, 5), np.full(5, 3.2)
    assert np.isclose(paired_difference(x, y).p, stats.ttest_1samp(x, 3.2).pvalue, rtol=1e-10)


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_intervals_cover_the_truth_in_95_percent(seeds):
    x, y = RNG(3).normal(size=(2, 20_000, seeds))
    mean, paired = mean_interval(x), paired_difference(x, y)
    assert 0.945 < ((mean.low < 0) & (mean.high > 0)).mean() < 0.955
    assert 0.945 < ((paired.low < 0) & (paired.high > 0)).mean() < 0.955
    assert 0.045 < (paired.p < 0.05).mean() < 0.055


def test_pairing_removes_the_effect_of_the_seed():
    seed = RNG(4).normal(0, 10, (2000, 5))
    own = RNG(5).normal(0, 0.1, (2, 2000, 5))
    paired = paired_difference(seed + own[0] + 0.5, seed + own[1])
    assert (paired.p < 0.05).mean() > 0.95


def test_holm_on_a_worked_example():
    # 4 tests: .005 x 4, .01 x 3, .03 x 2, .04 x 1 -> the last is raised to .06
    assert np.allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])


def test_holm_counts_only_tests():
    assert np.allclose(holm([0.02, np.nan, 0.5]), [0.04, np.nan, 0.5], equal_nan=True)


@untimed
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_between_raw_and_bonferroni_and_keeps_the_order(p):
    p, adjusted = np.array(p), holm(p)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(p * len(p), 1) + 1e-15).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()


def test_holm_rejects_a_true_hypothesis_once_in_twenty():
    p = RNG(6).uniform(size=(4000, 5))
    assert 0.04 < np.mean([holm(row).min() < 0.05 for row in p]) < 0.06


@untimed
@given(tables)
def test_the_rank_interval_includes_the_rank_and_needs_two_seeds(table):
    low, high = rank_intervals(table, resamples=200)
    n = (~np.isnan(table)).sum(1)
    assert (np.isnan(low) == (n < 2)).all()
    resampled, ranked = n > 1, n > 0
    mean = mean_interval(table).mean
    rank = np.full(len(table), np.nan)
    rank[ranked] = stats.rankdata(mean[ranked], method="min")
    assert (low[resampled] <= rank[resampled]).all()
    assert (rank[resampled] <= high[resampled]).all()
    assert ((low[resampled] >= 1) & (high[resampled] <= ranked.sum())).all()


def test_the_rank_interval_includes_a_first_rank_that_is_rarely_resampled():
    """A constant point just below many varying ones is first in few resamples."""
    others = RNG(11).normal(0, 1, (30, 8))
    others += 0.01 - others.mean(1, keepdims=True)
    low, high = rank_intervals(np.vstack([np.zeros(8), others]))
    assert (low[0], high[0] > 5) == (1, True)


def test_rank_intervals_are_paired():
    seed = RNG(7).normal(0, 10, 6)
    values = np.stack([seed, seed + 1, seed + 2]) + RNG(8).normal(0, 0.01, (3, 6))
    low, high = rank_intervals(values)
    assert low.tolist() == high.tolist() == [1, 2, 3]


def test_rank_intervals_are_deterministic():
    values = RNG(9).normal(size=(5, 4))
    assert np.array_equal(rank_intervals(values), rank_intervals(values))


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_two_equal_points_rarely_have_different_ranks(seeds):
    """The rate is near 0.05; the plain bootstrap has 0.51, 0.25 and 0.17 with 2, 3 and 5 seeds."""
    pairs = RNG(10).normal(size=(600, 2, seeds))
    decided = [rank_intervals(pair, resamples=500) for pair in pairs]
    assert np.mean([low[0] == high[0] for low, high in decided]) < 0.1


def test_a_clear_winner_has_rank_one_with_three_seeds():
    values = np.array([[1.0, 1.01, 0.99], [2.0, 2.02, 1.98]])
    low, high = rank_intervals(values)
    assert low.tolist() == high.tolist() == [1, 2]


def test_a_point_with_one_seed_counts_in_the_ranks_of_others():
    values = np.array([[1.0, 1.1, 0.9], [2.0, np.nan, np.nan], [3.0, 3.1, 2.9]])
    low, high = rank_intervals(values)
    assert np.array_equal(low, [1, np.nan, 3], equal_nan=True)
    assert np.array_equal(high, [1, np.nan, 3], equal_nan=True)
