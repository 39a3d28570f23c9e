"""Kendall's tau: equal to scipy's, with intervals of the right coverage."""

import numpy as np
import pytest
from agreement import kendall
from scipy import stats

NAN = float("nan")


def test_tau_equals_scipys_over_the_common_rows():
    x = np.array([1.0, 2.0, NAN, 3.0, 3.0, 5.0, 6.0])
    y = np.array([1.0, 3.0, 9.0, 2.0, 4.0, NAN, 8.0])
    paired = ~np.isnan(x) & ~np.isnan(y)
    expected = stats.kendalltau(x[paired], y[paired])
    result = kendall(x, y)
    assert (result.tau, result.p, result.rows) == (expected.statistic, expected.pvalue, 5)
    # One of 10 pairs is out of order: (9 - 1) / 10.
    assert np.isclose(kendall([1, 2, 3, 4, 5], [1, 2, 3, 5, 4]).tau, 0.8)


@pytest.mark.parametrize("table", [[], [1.0], [NAN, 2.0], [2.0, 2.0, 2.0]])
def test_too_few_different_values_have_no_tau(table):
    result = kendall(table, range(len(table)))
    assert np.isnan(result.tau)
    assert np.isnan(result.low)
