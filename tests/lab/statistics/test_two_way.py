"""Differences over seeds and sequences: equal to scipy's for one factor, with right coverage."""

import numpy as np
import pytest
from scipy import stats

from lmzoo.lab.statistics.two_way import (
    loss_contributions,
    two_way_difference,
    two_way_rank_intervals,
)

RNG = np.random.default_rng


def test_the_mean_contribution_is_the_loss():
    random = RNG(0)
    tokens = random.integers(1, 20, 50)
    nll = random.gamma(2, 1, (3, 50)) * tokens
    assert np.allclose(loss_contributions(nll, tokens, "token").mean(1), nll.sum(1) / tokens.sum())
    assert np.allclose(loss_contributions(nll, tokens, "sentence").mean(1), (nll / tokens).mean(1))


def test_the_standard_error_of_a_ratio_equals_its_spread_over_test_splits():
    """The contributions of one split predict the spread of Σ NLL / Σ n over new splits."""
    random = RNG(1)
    tokens = random.integers(1, 20, (4000, 80))
    nll = random.gamma(2, 1, tokens.shape) * tokens + 3
    own = (loss_contributions(a[None], b, "token") for a, b in zip(nll, tokens, strict=True))
    predicted = np.sqrt(np.mean([x.var(ddof=1) / 80 for x in own]))
    spread = (nll.sum(1) / tokens.sum(1)).std()
    assert np.isclose(predicted, spread, rtol=0.04)
    # n_b varies, so the spread of NLL_b / n̄ alone is another number.
    assert not np.isclose((nll / tokens.mean()).std() / np.sqrt(80), spread, rtol=0.2)


@pytest.mark.parametrize("axis", [0, 1])
def test_with_one_random_factor_it_equals_scipys_test(axis):
    shape = (6, 1) if axis == 0 else (1, 6)
    d = np.broadcast_to(RNG(2).normal(0.5, 1, shape), (6, 6))
    ours, theirs = two_way_difference(d, 0 * d), stats.ttest_1samp(d.mean(1 - axis), 0)
    interval = theirs.confidence_interval(0.95)
    assert np.isclose(ours.p, theirs.pvalue, rtol=1e-9)
    assert np.allclose([ours.low, ours.high], [interval.low, interval.high], rtol=1e-9)
    assert np.isclose(ours.better, 1 - theirs.pvalue / 2 if ours.mean < 0 else theirs.pvalue / 2)


COVERAGE = {
    "seeds": (0.94, 0.95, 0.95), "sequences": (0.95, 0.95, 0.95), "both": (0.95, 0.95, 0.95),
    "mostly seeds": (0.875, 0.925, 0.945), "neither": (0.98, 0.98, 0.98),
}  # fmt: skip
"""Source of the variance -> coverage of the interval with two, three and five seeds."""


def random_differences(random, kind, seeds, sequences=100):
    # Seeds have 95 % of the variance of the mean: the worst case for few seeds.
    mostly = np.sqrt(19 * seeds / sequences)
    of_seeds, of_sequences, of_both = {
        "seeds": (1, 0, 1), "sequences": (0.1, 3, 0.1), "both": (0.1, 1, 1),
        "mostly seeds": (mostly, 1, 0.1), "neither": (0, 0, 1),
    }[kind]  # fmt: skip
    d = random.normal(0, of_seeds, (seeds, 1)) + random.normal(0, of_sequences, sequences)
    return d + random.normal(0, of_both, (seeds, sequences))


@pytest.mark.parametrize(
    ("kind", "seeds", "coverage"),
    [(k, s, h) for k, rates in COVERAGE.items() for s, h in zip((2, 3, 5), rates, strict=True)],
)
def test_intervals_have_the_documented_coverage(kind, seeds, coverage):
    random = RNG(3)
    covered, rejected = [], []
    for _ in range(600):
        d = random_differences(random, kind, seeds)
        result = two_way_difference(d, np.zeros_like(d))
        covered.append(result.low < 0 < result.high)
        rejected.append(result.p < 0.05)
    assert abs(np.mean(covered) - coverage) < 0.025
    assert np.mean(covered) + np.mean(rejected) == 1


def test_one_seed_has_no_interval_and_equal_differences_no_test():
    d = RNG(5).normal(size=(1, 9))
    result = two_way_difference(d, 0 * d)
    assert result.mean == d.mean()
    assert np.isnan([*result[1:]]).all()
    same = np.full((3, 9), 0.25)
    exact = two_way_difference(same, 0 * same)
    assert (exact.low, exact.high, exact.better) == (0.25, 0.25, 0.0)
    assert np.isnan(exact.p)


def test_rank_intervals_are_paired_and_need_two_seeds():
    noise = RNG(6).normal(0, 10, (4, 1)) + RNG(7).normal(0, 10, 50)
    apart = np.stack([noise, noise + 1, noise + 2])
    low, high = two_way_rank_intervals(apart)
    assert low.tolist() == high.tolist() == [1, 2, 3]
    assert np.isnan(two_way_rank_intervals(apart[:, :1])).all()


def test_rank_intervals_include_the_variance_of_the_split():
    """Each of two models wins half of the sequences by far, so another split may reverse them."""
    losses = np.where(np.arange(50) % 2, 5.0, -5.0) + RNG(9).normal(0, 1, 50)
    points = np.stack([np.tile(losses, (5, 1)), np.zeros((5, 50))])
    points += RNG(10).normal(0, 0.001, points.shape)
    low, high = two_way_rank_intervals(points)
    assert low.tolist() == [1, 1]
    assert high.tolist() == [2, 2]


@pytest.mark.parametrize("seeds", [2, 3])
def test_rank_intervals_of_equal_points_hold_all_ranks_in_95_percent(seeds):
    random, held = RNG(12), []
    for _ in range(300):
        points = random.normal(0, 1, (4, seeds, 1)) + random.normal(0, 0.01, (4, seeds, 10))
        low, high = two_way_rank_intervals(points)
        held.append((low == 1) & (high == 4))
    assert 0.94 < np.mean(held) < 0.99


def test_the_variance_of_the_tuning_is_covered():
    random, sd = np.random.default_rng(6), 0.5
    covered = []
    for _ in range(600):
        values = random.normal(0, 1, (4, 1)) + random.normal(0, 1, 30) + random.normal(0, sd)
        difference = two_way_difference(values, np.zeros((4, 30)), tuning=sd**2)
        covered.append(difference.low < 0 < difference.high)
    assert 0.92 < np.mean(covered) < 0.99
