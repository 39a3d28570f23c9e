"""Differences over seeds and sequences: scipy's where one kind of luck is absent; chance's."""

import numpy as np
import pytest
from scipy import stats

from lmzoo.analysis.seeds_by_sequences import crossed_difference, crossed_ranks, shares

RNG = np.random.default_rng


def test_a_row_of_shares_has_the_loss_as_its_mean():
    random = RNG(0)
    tokens = random.integers(1, 20, 50)
    nll = random.gamma(2, 1, (3, 50)) * tokens
    assert np.allclose(shares(nll, tokens, "token").mean(1), nll.sum(1) / tokens.sum())
    assert np.allclose(shares(nll, tokens, "sentence").mean(1), (nll / tokens).mean(1))


def test_the_error_of_a_ratio_is_that_of_other_test_splits():
    """The spread of Σ NLL / Σ n over fresh splits is what one split's shares foretell."""
    random = RNG(1)
    tokens = random.integers(1, 20, (4000, 80))
    nll = random.gamma(2, 1, tokens.shape) * tokens + 3
    foretold = np.sqrt(
        np.mean(
            [shares(a[None], b, "token").var(ddof=1) / 80 for a, b in zip(nll, tokens, strict=True)]
        )
    )
    spread = (nll.sum(1) / tokens.sum(1)).std()
    assert np.isclose(foretold, spread, rtol=0.04)
    # n_b varies, so the spread of NLL_b / n̄ alone is another number.
    assert not np.isclose((nll / tokens.mean()).std() / np.sqrt(80), spread, rtol=0.2)


@pytest.mark.parametrize("axis", [0, 1])
def test_with_one_kind_of_luck_it_is_scipys_test(axis):
    shape = (6, 1) if axis == 0 else (1, 6)
    d = np.broadcast_to(RNG(2).normal(0.5, 1, shape), (6, 6))
    ours, theirs = crossed_difference(d, 0 * d), stats.ttest_1samp(d.mean(1 - axis), 0)
    between = theirs.confidence_interval(0.95)
    assert np.isclose(ours.p, theirs.pvalue, rtol=1e-9)
    assert np.allclose([ours.low, ours.high], [between.low, between.high], rtol=1e-9)
    assert np.isclose(ours.better, 1 - theirs.pvalue / 2 if ours.mean < 0 else theirs.pvalue / 2)


HELD = [
    ("seeds", (0.94, 0.95, 0.95)),
    ("sequences", (0.95, 0.95, 0.95)),
    ("both", (0.95, 0.95, 0.95)),
    ("mostly seeds", (0.875, 0.925, 0.945)),
    ("neither", (0.98, 0.98, 0.98)),
]
"""Where the luck lies, and how often the interval of two, three and five seeds holds the truth."""


def drawn(random, kind, seeds, sequences=100):
    """A study's paired differences, zero in truth."""
    # The seeds' share of the variance of the mean is 95 %: where their few make most of trouble.
    mostly = np.sqrt(19 * seeds / sequences)
    of_seeds, of_sequences, of_both = {
        "seeds": (1, 0, 1), "sequences": (0.1, 3, 0.1), "both": (0.1, 1, 1),
        "mostly seeds": (mostly, 1, 0.1), "neither": (0, 0, 1),
    }[kind]  # fmt: skip
    d = random.normal(0, of_seeds, (seeds, 1)) + random.normal(0, of_sequences, sequences)
    return d + random.normal(0, of_both, (seeds, sequences))


@pytest.mark.parametrize(
    ("kind", "seeds", "holds"),
    [(k, s, h) for k, each in HELD for s, h in zip((2, 3, 5), each, strict=True)],
)
def test_intervals_hold_the_truth_as_often_as_the_page_of_analysis_says(kind, seeds, holds):
    random = RNG(3)
    held, rejected = [], []
    for _ in range(600):
        d = drawn(random, kind, seeds)
        found = crossed_difference(d, np.zeros_like(d))
        held.append(found.low < 0 < found.high)
        rejected.append(found.p < 0.05)
    assert abs(np.mean(held) - holds) < 0.025
    assert np.mean(held) + np.mean(rejected) == 1


def test_seeds_alone_would_be_sure_too_often_of_another_split():
    """Two models that differ on single sentences only, equal over all: the split decides."""
    random, N = RNG(4), 100
    alone, crossed = [], []
    for _ in range(400):
        d = random.normal(0, 1, N) + random.normal(0, 0.1, (5, N))
        alone.append(stats.ttest_1samp(d.mean(1), 0).pvalue < 0.05)
        crossed.append(crossed_difference(d, 0 * d).p < 0.05)
    assert np.mean(alone) > 0.8
    assert np.mean(crossed) < 0.08


def test_one_seed_has_no_interval_and_no_noise_no_test():
    d = RNG(5).normal(size=(1, 9))
    found = crossed_difference(d, 0 * d)
    assert found.mean == d.mean()
    assert np.isnan([*found[1:]]).all()
    same = np.full((3, 9), 0.25)
    exact = crossed_difference(same, 0 * same)
    assert (exact.low, exact.high, exact.better) == (0.25, 0.25, 0.0)
    assert np.isnan(exact.p)


def test_ranks_are_paired_and_hold_the_observed():
    luck = RNG(6).normal(0, 10, (4, 1)) + RNG(7).normal(0, 10, 50)
    apart = np.stack([luck, luck + 1, luck + 2])
    low, high = crossed_ranks(apart)
    assert low.tolist() == high.tolist() == [1, 2, 3]
    alike = RNG(8).normal(0, 1, (3, 4, 50))
    low, high = crossed_ranks(alike)
    rank = stats.rankdata(alike.mean((1, 2)))
    assert ((low <= rank) & (rank <= high)).all()
    assert (high - low).max() > 0
    assert np.isnan(crossed_ranks(alike[:, :1])).all()


def test_ranks_know_that_the_split_is_a_draw():
    """Each wins on half of the sentences by much: sure on this split, not of another."""
    on = np.where(np.arange(50) % 2, 5.0, -5.0) + RNG(9).normal(0, 1, 50)
    points = np.stack([np.tile(on, (5, 1)), np.zeros((5, 50))]) + RNG(10).normal(
        0, 0.001, (2, 5, 50)
    )
    low, high = crossed_ranks(points)
    assert low.tolist() == [1, 1]
    assert high.tolist() == [2, 2]


@pytest.mark.parametrize(("seeds", "one", "any_of_six"), [(2, 0.023, 0.13), (3, 0.007, 0.036)])
def test_four_equal_points_are_told_apart_as_seldom_as_the_page_of_analysis_says(
    seeds, one, any_of_six
):
    """Told apart: two intervals share no rank; one pair named before, or any of the six.

    Only seeds have an effect: luck of sequences makes the intervals wider yet.
    """
    random, apart = RNG(12), []
    for study in range(800):
        points = random.normal(0, 1, (4, seeds, 1)) + random.normal(0, 0.01, (4, seeds, 10))
        low, high = crossed_ranks(points, resamples=400, seed=study)
        apart.append((high[:, None] < low).sum())  # of twelve, of which six can be
    assert abs(np.mean(apart) / 6 - one) < 0.006
    assert abs(np.mean(np.array(apart) > 0) - any_of_six) < 0.025
