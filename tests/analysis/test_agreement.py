"""Kendall's tau and win rates against scipy and against chance."""

import numpy as np
import pytest
from scipy import stats

from lmzoo.analysis.agreement import kendall, win_rate

RNG = np.random.default_rng
NAN, INF = float("nan"), float("inf")


def test_tau_is_scipys_over_the_rows_both_have():
    x = np.array([1.0, 2.0, NAN, 3.0, 3.0, 5.0, 6.0])
    y = np.array([1.0, 3.0, 9.0, 2.0, 4.0, NAN, 8.0])
    both = ~np.isnan(x) & ~np.isnan(y)
    theirs = stats.kendalltau(x[both], y[both])
    ours = kendall(x, y)
    assert (ours.tau, ours.p, ours.rows) == (theirs.statistic, theirs.pvalue, 5)


def test_a_worked_example():
    # of 10 pairs one is out of order: (9 - 1) / 10
    assert np.isclose(kendall([1, 2, 3, 4, 5], [1, 2, 3, 5, 4]).tau, 0.8)
    assert np.isclose(kendall([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]).tau, -1)


@pytest.mark.parametrize(("rows", "correlation"), [(8, 0.0), (12, 0.6)])
def test_the_interval_holds_the_truth_nineteen_times_in_twenty(rows, correlation):
    """Of normal variables, whose tau is known: 2 arcsin(ρ) / π."""
    random, truth = RNG(0), 2 / np.pi * np.arcsin(correlation)
    held = []
    for _ in range(600):
        x, noise = random.normal(size=(2, rows))
        found = kendall(x, correlation * x + np.sqrt(1 - correlation**2) * noise)
        held.append(found.low <= truth <= found.high)
    assert 0.93 < np.mean(held) < 0.97


def test_full_agreement_of_few_is_not_certainty():
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
def test_nothing_to_order_is_no_number(table):
    found = kendall(table, range(len(table)))
    assert np.isnan(found.tau)
    assert np.isnan(found.low)


def test_wilsons_interval_is_scipys():
    x, y = RNG(1).normal(size=(2, 12))
    ours = win_rate(x, y)
    theirs = stats.binomtest(int((x < y).sum()), 12).proportion_ci(0.95, method="wilson")
    assert np.allclose([ours.low, ours.high], [theirs.low, theirs.high])
    assert ours.rate == (x < y).mean()


def test_a_diverged_run_loses_and_is_counted():
    found = win_rate([INF, 1.0, 1.0, INF, 1.0], [2.0, 2.0, INF, INF, NAN])
    assert (found.rate, found.seeds) == ((0 + 1 + 1 + 0.5) / 4, 4)
    assert np.isnan(win_rate([NAN], [1.0]).rate)
