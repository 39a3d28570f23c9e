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
from tests.cases import cases, rows
from tests.lab.statistics.normal_draws import normal

CASES = "lab/statistics/cases.toml"


def own_noise(x):
    """Return the expected variance of each point, without the effects of the seeds."""
    every = np.ones(40, bool)
    left, share = without_seed_effects(x, every)
    return seed_noise(left, None, 0.0, share).expected()


def test_effects_of_seeds_are_removed():
    # The variance 0.01, and effects of the seeds of ten thousand times as much.
    own = 0.1 * normal(2, 40, 5)
    common = 10 * normal(3, 5)
    found = own_noise(own + common)
    np.testing.assert_allclose(found, own_noise(own), rtol=1e-6, atol=1e-8)
    assert np.median(found) == pytest.approx(0.01, rel=0.2)


def test_a_seed_of_one_point_has_no_effect_that_could_be_removed():
    x = np.array([[1.0, 2, 3]] * 2)
    # The last seed is that of the first point alone.
    x[1, 2] = np.nan
    every = np.ones(2, bool)
    left, _ = without_seed_effects(x, every)
    assert np.isnan(left).sum() == 2


@pytest.mark.parametrize("ratio", [20, 1000])
def test_a_noisy_point_keeps_its_own_variance(ratio):
    x = 0.1 * normal(4, 30, 10)
    # The usual variance is 0.01.
    x[7] *= ratio
    noise = seed_noise(x)
    expected = noise.expected()
    measured = x[7].var(ddof=1)
    assert noise.noisy()[7]
    assert 0.5 < expected[7] / measured < 2.5
    assert np.median(expected) == pytest.approx(0.01, rel=0.3)


def test_an_own_variance_has_the_tail_of_students_t():
    """For an outlier, the prior of the variance is flat in its logarithm, up to 400 times."""
    x = 0.01 * normal(5, 40, 5)
    x[3] *= 10
    noise = seed_noise(x)
    assert noise.outlier[3]
    sd = np.sqrt(noise.variance)
    # Student's t with infinite degrees of freedom is the normal distribution.
    infinite = np.full(sd.shape, np.inf)
    # A difference of three of its own standard deviations.
    three_sd = 3.0 * np.sqrt(noise.own)
    found = tail(noise.weight, sd, infinite, three_sd)
    expected = stats.t.sf(3.0, 4)
    assert found[3] == pytest.approx(expected, rel=0.25)


def test_a_variance_that_is_known_well_may_be_far_from_the_others():
    """So far that some of the possible distributions give it the probability 0."""
    variances, freedom = rows(CASES, "far_variances")
    values, weight, _ = posterior(np.array(variances), np.array(freedom))
    expected = weight @ values
    assert expected[2] == pytest.approx(variances[2], rel=0.2)


@cases(CASES, "grids", "scale, offset")
def test_the_grid_of_a_metric_is_its_least_step(scale, offset):
    # Correct answers of 64.
    counts = np.array([63, 62, 64, 59, 62])
    metric = scale * counts / 64 + offset
    step = scale / 64
    variance = rounding_variance(metric)
    assert variance == pytest.approx(step**2 / 12, rel=1e-6)


def test_the_least_step_is_that_between_neighbours():
    variance = rounding_variance([3000, 3250, 2500])
    assert variance == pytest.approx(250**2 / 12)


def test_one_value_but_for_rounding_has_no_grid():
    # 0.1 + 0.2 is 0.30000000000000004.
    assert rounding_variance([0.1 + 0.2, 0.3, 0.3]) == 0


@cases(CASES, "held", "common, seeds")
def test_intervals_of_points_hold_their_means(common, seeds):
    rng = np.random.default_rng(7)
    held = []
    for _ in range(200):
        of_seeds = common * rng.normal(size=seeds)
        own = rng.normal(size=(12, seeds))
        interval = point_intervals(of_seeds + own)
        holds = (interval.low <= 0) & (interval.high >= 0)
        held.append(holds)
    assert np.mean(held) > 0.92
