"""Intervals of means: equal to scipy's, with right coverage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from lmzoo.lab.statistics.intervals import mean_interval

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


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_equal_values_are_exact(seeds):
    x = np.full(seeds, 2.1)  # the sum of ten times 2.1 is not exactly 21
    assert [*mean_interval(x)] == [2.1, 2.1, 2.1]
