"""Intervals and paired differences: equal to scipy's, with right coverage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from lmzoo.lab.statistics.intervals import bootstrap_scale, mean_interval, paired_difference

RNG = np.random.default_rng
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


@settings(max_examples=50)
@given(tables)
def test_a_missing_value_equals_a_seed_that_was_not_run(table):
    ours = mean_interval(table)
    for i, row in enumerate(table):
        measured = row[~np.isnan(row)]
        alone = mean_interval(measured)
        assert np.allclose([c[i] for c in ours], [*alone], equal_nan=True, atol=1e-9)
        assert np.isnan(ours.mean[i]) == (len(measured) == 0)
        assert np.isnan(ours.low[i]) == (len(measured) < 2)


@settings(max_examples=50)
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


def test_a_known_variance_of_the_mean_is_covered():
    """The offset of a repetition is common to its seeds, so the seeds do not show it."""
    random, offset_sd = np.random.default_rng(5), 0.5
    seeds = random.normal(0, 1, (4000, 5)) + random.normal(0, offset_sd, (4000, 1))

    def coverage(variance):
        interval = mean_interval(seeds, variance=variance)
        return ((interval.low < 0) & (interval.high > 0)).mean()

    assert coverage(0.0) < 0.9
    assert 0.93 < coverage(offset_sd**2) < 0.97
    difference = paired_difference(seeds, 0.0, variance=offset_sd**2)
    assert 0.03 < (difference.p < 0.05).mean() < 0.07
