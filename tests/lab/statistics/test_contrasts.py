"""Contrasts: the paired test for few points; the tuning; seeds of the reference alone."""

import numpy as np
import pytest
from scipy import stats

from lmzoo.lab.statistics.contrasts import contrasts

RNG = np.random.default_rng


def test_the_reference_has_no_contrast():
    ours = contrasts(RNG(1).normal(size=(6, 4)), 2)
    assert np.flatnonzero(np.isnan(ours.mean)).tolist() == [2]
    assert np.flatnonzero(np.isnan(ours.p)).tolist() == [2]


def test_contrasts_change_sign_with_the_reference():
    x = RNG(2).normal(size=(6, 4))
    a, b = contrasts(x, 0), contrasts(x, 1)
    assert np.isclose(a.mean[1], -b.mean[0])
    assert np.isclose(a.p[1], b.p[0])


def test_tuning_widens_the_interval_but_not_that_of_count_models():
    x, sd = RNG(3).normal(0, 0.01, (8, 5)), np.zeros(8)
    x[4] = 1.0
    sd[3:5] = 0.05
    without, with_tuning = contrasts(x, 0), contrasts(x, 0, sd)
    assert np.isclose(with_tuning.error[3] ** 2, without.error[3] ** 2 + 0.05**2)
    assert np.allclose(with_tuning.error[4:], without.error[4:])


def test_a_missing_and_a_diverged_seed_are_seeds_that_were_not_run():
    x = RNG(4).normal(size=(8, 5))
    x[:, 4] = np.nan
    x[2, 4] = np.inf
    assert np.allclose(contrasts(x, 0).p, contrasts(x[:, :4], 0).p, equal_nan=True)


def test_the_interval_is_the_inverse_of_the_test():
    c = contrasts(RNG(5).normal(size=(9, 4)), 0)
    for level in (0.5, 0.95, 0.999):
        assert np.allclose(2 * c.tail(c.half(level))[1:], 1 - level, rtol=1e-3)


def test_a_noisy_reference_profits_from_seeds_of_its_own():
    rng, errors = RNG(6), []
    for _ in range(150):
        x = rng.normal(0, 0.01, (10, 40)) + 0.01 * rng.normal(size=40)
        x[0] += rng.normal(0, 0.2, 40)
        x[1:, 5:] = np.nan
        paired, longer = contrasts(x[:, :5], 0), contrasts(x, 0)
        errors.append((paired.mean[1], longer.mean[1], longer.half()[1]))
    paired, longer, half = np.array(errors).T
    assert longer.std() < 0.6 * paired.std()
    assert np.mean(np.abs(longer) <= half) > 0.9


@pytest.mark.parametrize("points", [2, 5])
@pytest.mark.parametrize("paired", [True, False])
def test_numbers_with_few_decimals_are_not_exact(points, paired):
    """Three equal differences of 0.01 come from rounding in 1 of 70 pairs without an effect."""
    seeds = np.array([5.32, 5.35, 5.29]) if paired else np.full(3, 5.32)
    x = np.stack([seeds, *([seeds - 0.01] * (points - 1))])
    found = contrasts(x, 0, paired=paired)
    rounding = 0.01 * np.sqrt(2 / 12 / 3)
    assert np.all(found.error[1:] > 0.99 * rounding)
    assert points > 2 or found.error[1] == pytest.approx(rounding)
    assert np.all(found.p[1:] > 0.001)
    many = contrasts(x + 1e-4 * np.pi, 0, paired=paired)  # no decimals are known
    assert np.all(many.error[1:] < 1e-9)


def test_rounded_numbers_of_some_spread_are_compared_as_they_are():
    x = RNG(5).normal(size=(2, 6)).round(2)
    assert np.isclose(contrasts(x, 0).p[1], stats.ttest_rel(x[1], x[0]).pvalue)
