"""Shared variances: alike points share, others keep their own, and few points share nothing."""

import numpy as np
import pytest
from scipy import stats

from lmzoo.lab.statistics.intervals import mean_interval
from lmzoo.lab.statistics.noise import point_intervals, posterior, seed_noise

RNG = np.random.default_rng


def test_equal_variances_are_pooled():
    noise = seed_noise(RNG(1).normal(0, 0.1, (400, 5)))
    assert np.allclose(np.median(noise.expected()), 0.01, rtol=0.15)
    assert noise.outlier.mean() < 0.1


def test_the_part_that_all_points_share_is_left_out():
    own, common = RNG(2).normal(0, 0.1, (40, 5)), RNG(3).normal(0, 10, 5)
    apart, together = seed_noise(own), seed_noise(own + common)
    assert np.allclose(apart.expected(), together.expected(), rtol=1e-6)
    assert together.common > 100 * apart.common


@pytest.mark.parametrize("ratio", [20, 1000])
def test_a_noisy_point_keeps_its_own_variance(ratio):
    x = RNG(4).normal(0, 0.1, (30, 10))
    x[7] *= ratio
    noise = seed_noise(x)
    assert noise.noisy()[7]
    assert 0.5 < noise.expected()[7] / x[7].var(ddof=1) < 2.5
    assert np.allclose(np.median(noise.expected()), 0.01, rtol=0.3)


def test_variances_that_differ_are_not_made_equal():
    true = 0.01 * np.exp(RNG(8).normal(0, 1.5, 300))
    found = posterior(true * RNG(9).chisquare(9, 300) / 9, np.full(300, 9.0)).expected()
    assert stats.spearmanr(true, found).statistic > 0.9


def test_an_own_variance_has_the_tail_of_students_t():
    """For an outlier, the prior of the variance is flat in its logarithm, up to 400 times."""
    x = RNG(5).normal(0, 0.01, (40, 5))
    x[3] *= 10
    noise = seed_noise(x)
    weight = np.einsum("tk,t->k", noise.weight[3], noise.model)
    t = 3.0
    s2 = float(noise.variance @ weight) * (4 * 39 / 40 - 2) / (4 * 39 / 40)
    tail = weight @ stats.norm.sf(t * np.sqrt(s2 / np.maximum(noise.variance, 1e-30)))
    assert tail == pytest.approx(stats.t.sf(t, 4), rel=0.5)


def test_a_variance_that_is_known_well_may_be_far_from_the_others():
    """So far that some of the possible distributions give it the probability 0."""
    variances = np.array([5.7e-5, 5.7e-5, 4.4e-6, 1.0e-5, 3.1e-5, 4.2e-5, 6.7e-5, 2.0e-3])
    noise = posterior(variances, np.array([40.0, 18.0, 501.0, 149.0, 25.0, 20.0, 8.0, 4.0]))
    assert noise.expected()[2] == pytest.approx(4.4e-6, rel=0.2)


def test_exact_points_have_no_noise_and_single_seeds_none_known():
    x = RNG(5).normal(size=(8, 3))
    x[0], x[1, 1:] = 2.0, np.nan
    v = seed_noise(x).expected()
    assert v[0] == 0
    assert np.isnan(v).tolist() == [False, True, *[False] * 6]
    assert seed_noise(x[:5]) is None  # three varying points


def test_few_points_have_the_t_interval():
    x = RNG(6).normal(size=(3, 4))
    assert np.array_equal(point_intervals(x), mean_interval(x))


@pytest.mark.parametrize("seeds", [2, 3])
@pytest.mark.parametrize("common", [0.0, 3.0])
def test_intervals_of_points_hold_their_means(common, seeds):
    rng, held = RNG(7), []
    for _ in range(200):
        x = common * rng.normal(size=seeds) + rng.normal(size=(12, seeds))
        interval = point_intervals(x)
        held.append((interval.low <= 0) & (interval.high >= 0))
    assert np.mean(held) > 0.92
