"""Shared variances: alike points share, others keep their own, and few points share nothing."""

import numpy as np
import pytest
from scipy import stats

from lmzoo.lab.statistics.contrasts import point_intervals
from lmzoo.lab.statistics.noise import (
    posterior,
    rounding_variance,
    seed_noise,
    tail,
    without_seed_effects,
)

RNG = np.random.default_rng


def own_noise(x):
    """Return the expected variance of each point, without the effects of the seeds."""
    left, share = without_seed_effects(x, np.ones(40, bool))
    return seed_noise(left, None, 0.0, share).expected()


def test_effects_of_seeds_are_removed():
    own = RNG(2).normal(0, 0.1, (40, 5))
    common = RNG(3).normal(0, 10, 5)
    found = own_noise(own + common)
    assert np.allclose(found, own_noise(own), rtol=1e-6)
    assert np.median(found) == pytest.approx(0.01, rel=0.2)


def test_a_seed_of_one_point_has_no_effect_that_could_be_removed():
    x = np.array([[1.0, 2, 3], [1, 2, np.nan]])
    left, _ = without_seed_effects(x, np.ones(2, bool))
    assert np.isnan(left).sum() == 2


@pytest.mark.parametrize("ratio", [20, 1000])
def test_a_noisy_point_keeps_its_own_variance(ratio):
    x = RNG(4).normal(0, 0.1, (30, 10))
    x[7] *= ratio
    noise = seed_noise(x)
    expected = noise.expected()
    assert noise.noisy()[7]
    assert 0.5 < expected[7] / x[7].var(ddof=1) < 2.5
    assert np.median(expected) == pytest.approx(0.01, rel=0.3)


def test_an_own_variance_has_the_tail_of_students_t():
    """For an outlier, the prior of the variance is flat in its logarithm, up to 400 times."""
    x = RNG(5).normal(0, 0.01, (40, 5))
    x[3] *= 10
    noise = seed_noise(x)
    assert noise.outlier[3]
    sd = np.sqrt(noise.variance)
    normal = np.full(sd.shape, np.inf)
    three_sd = 3.0 * np.sqrt(noise.own)
    found = tail(noise.weight, sd, normal, three_sd)
    assert found[3] == pytest.approx(stats.t.sf(3.0, 4), rel=0.25)


def test_a_variance_that_is_known_well_may_be_far_from_the_others():
    """So far that some of the possible distributions give it the probability 0."""
    variances = np.array([5.7e-5, 5.7e-5, 4.4e-6, 1.0e-5, 3.1e-5, 4.2e-5, 6.7e-5, 2.0e-3])
    freedom = np.array([40.0, 18.0, 501.0, 149.0, 25.0, 20.0, 8.0, 4.0])
    values, weight, _ = posterior(variances, freedom)
    expected = weight @ values
    assert expected[2] == pytest.approx(4.4e-6, rel=0.2)


@pytest.mark.parametrize(("scale", "offset"), [(1, 0), (1e-9, 0), (1e9, 0), (1, 1e6), (-1, 0)])
def test_the_grid_of_a_metric_is_its_least_step(scale, offset):
    metric = np.array([63, 62, 64, 59, 62]) / 64
    variance = rounding_variance(scale * metric + offset)
    step = scale / 64
    assert variance == pytest.approx(step**2 / 12, rel=1e-6)


def test_the_least_step_is_that_between_neighbours():
    assert rounding_variance([3000, 3250, 2500]) == pytest.approx(250**2 / 12)


def test_one_value_but_for_rounding_has_no_grid():
    assert rounding_variance([0.1 + 0.2, 0.3, 0.3]) == 0


@pytest.mark.parametrize(("common", "seeds"), [(0.0, 2), (0.0, 3), (3.0, 5)])
def test_intervals_of_points_hold_their_means(common, seeds):
    rng = RNG(7)
    held = []
    for _ in range(200):
        of_seeds = common * rng.normal(size=seeds)
        interval = point_intervals(of_seeds + rng.normal(size=(12, seeds)))
        held.append((interval.low <= 0) & (interval.high >= 0))
    assert np.mean(held) > 0.92
