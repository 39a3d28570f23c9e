"""Shared variances: the prior is found again, and few points share nothing."""

import numpy as np
import pytest

from lmzoo.statistics.intervals import mean_interval
from lmzoo.statistics.moderation import moderated_intervals, prior_of_variances, seed_spread

RNG = np.random.default_rng


@pytest.mark.parametrize(("d0", "s0"), [(4.0, 0.01), (20.0, 3.0)])
def test_the_prior_of_many_variances_is_found(d0, s0):
    rng = RNG(0)
    true = d0 * s0 / rng.chisquare(d0, 20_000)
    found = prior_of_variances(true * rng.chisquare(4, 20_000) / 4, np.full(20_000, 4.0))
    assert np.allclose(found, (d0, s0), rtol=0.15)


def test_equal_variances_are_pooled():
    spread = seed_spread(RNG(1).normal(0, 0.1, (400, 5)))
    assert np.allclose(spread.variance, 0.01, rtol=0.15)
    assert (spread.freedom > 50).all()


def test_the_part_that_all_points_share_is_left_out():
    own, common = RNG(2).normal(0, 0.1, (40, 5)), RNG(3).normal(0, 10, 5)
    apart, together = seed_spread(own), seed_spread(own + common)
    assert np.allclose(apart.variance, together.variance, rtol=1e-6)


def test_a_noisy_point_keeps_a_larger_variance():
    x = RNG(4).normal(0, 0.1, (30, 10))
    x[7] *= 20
    spread = seed_spread(x)
    assert spread.variance[7] > 10 * np.median(spread.variance)


def test_exact_points_and_single_seeds_share_nothing():
    x = RNG(5).normal(size=(8, 3))
    x[0], x[1, 1:] = 2.0, np.nan
    spread = seed_spread(x)
    assert np.isnan(spread.variance).tolist() == [True, True, *[False] * 6]
    assert not seed_spread(x[:5]).known.any()  # three varying points


def test_few_points_have_the_t_interval():
    x = RNG(6).normal(size=(3, 4))
    assert np.array_equal(moderated_intervals(x), mean_interval(x))


@pytest.mark.parametrize("common", [0.0, 3.0])
def test_intervals_of_points_hold_their_means(common):
    rng, held = RNG(7), []
    for _ in range(400):
        x = common * rng.normal(size=3) + rng.normal(size=(12, 3))
        interval = moderated_intervals(x)
        held.append((interval.low <= 0) & (interval.high >= 0))
    assert 0.92 < np.mean(held) < 0.97
