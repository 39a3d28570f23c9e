"""Kendall's tau: equal to scipy's, with intervals of the right coverage."""

import numpy as np
import pytest
from agreement import kendall
from scipy import stats

RNG = np.random.default_rng
NAN = float("nan")


def test_tau_equals_scipys_over_the_common_rows():
    x = np.array([1.0, 2.0, NAN, 3.0, 3.0, 5.0, 6.0])
    y = np.array([1.0, 3.0, 9.0, 2.0, 4.0, NAN, 8.0])
    paired = ~np.isnan(x) & ~np.isnan(y)
    expected = stats.kendalltau(x[paired], y[paired])
    result = kendall(x, y)
    assert (result.tau, result.p, result.rows) == (expected.statistic, expected.pvalue, 5)


def test_tau_of_a_worked_example():
    # One of 10 pairs is out of order: (9 - 1) / 10.
    assert np.isclose(kendall([1, 2, 3, 4, 5], [1, 2, 3, 5, 4]).tau, 0.8)
    assert np.isclose(kendall([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]).tau, -1)


@pytest.mark.parametrize(("rows", "correlation"), [(8, 0.0), (12, 0.6)])
def test_the_interval_covers_the_true_tau_in_95_percent(rows, correlation):
    """The τ of normal variables is 2 arcsin(ρ) / π."""
    random, truth = RNG(0), 2 / np.pi * np.arcsin(correlation)
    covered = []
    for _ in range(600):
        x, noise = random.normal(size=(2, rows))
        result = kendall(x, correlation * x + np.sqrt(1 - correlation**2) * noise)
        covered.append(result.low <= truth <= result.high)
    assert 0.93 < np.mean(covered) < 0.97


def test_full_agreement_of_few_rows_has_a_wide_interval():
    same = kendall(range(5), range(5))
    assert same.tau == pytest.approx(1)
    assert same.high == 1
    assert -1 < same.low < 0.5
    assert np.isclose(kendall(range(5), range(5, 0, -1)).high, -same.low)
    assert kendall(range(30), range(30)).low > 0.85
    few = kendall(range(4), range(4))
    assert few.tau == pytest.approx(1)
    assert np.isnan(few.low)


@pytest.mark.parametrize("table", [[], [1.0], [NAN, 2.0], [2.0, 2.0, 2.0]])
def test_too_few_different_values_have_no_tau(table):
    result = kendall(table, range(len(table)))
    assert np.isnan(result.tau)
    assert np.isnan(result.low)
