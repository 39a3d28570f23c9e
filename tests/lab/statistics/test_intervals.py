"""Intervals of means: equal to scipy's, with right coverage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from lmzoo.lab.statistics.intervals import mean_interval

finite = st.floats(-10, 10).map(lambda x: round(x, 3))
sometimes_missing = st.one_of(finite, st.just(float("nan")))
tables = arrays(
    np.float64, array_shapes(min_dims=2, max_dims=2, max_side=5), elements=sometimes_missing
)


@settings(max_examples=50)
@given(tables)
def test_the_interval_is_scipys_of_the_values_that_were_measured(table):
    expected = []
    for row in table:
        measured = row[~np.isnan(row)]
        n = len(measured)
        mean = np.nan
        half = np.nan
        if n:
            mean = measured.mean()
        if n > 1:
            # 95 %, in two tails.
            half = stats.t.isf(0.025, n - 1) * stats.sem(measured)
        expected.append([mean, mean - half, mean + half])
    found = np.transpose(mean_interval(table))
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_equal_values_are_exact(seeds):
    x = np.full(seeds, 2.1)  # the sum of ten times 2.1 is not exactly 21
    assert [*mean_interval(x)] == [2.1, 2.1, 2.1]
