"""Contrasts: scipy's paired test for few points; tuning and divergence count against a point."""

import numpy as np
from scipy import stats

from lmzoo.statistics.contrasts import contrasts

RNG = np.random.default_rng


def test_few_points_have_the_paired_t_test():
    x = RNG(0).normal(size=(3, 6))
    ours = contrasts(x, 0)
    for point in (1, 2):
        theirs = stats.ttest_rel(x[point], x[0])
        interval = theirs.confidence_interval(0.95)
        assert np.isclose(ours.p[point], theirs.pvalue)
        assert np.allclose([ours.low[point], ours.high[point]], [interval.low, interval.high])


def test_the_reference_has_no_contrast():
    ours = contrasts(RNG(1).normal(size=(6, 4)), 2)
    assert np.flatnonzero(np.isnan(ours.mean)).tolist() == [2]
    assert np.flatnonzero(np.isnan(ours.p)).tolist() == [2]


def test_contrasts_change_sign_with_the_reference():
    x = RNG(2).normal(size=(6, 4))
    a, b = contrasts(x, 0), contrasts(x, 1)
    assert np.isclose(a.mean[1], -b.mean[0])
    assert np.isclose(a.p[1], b.p[0])
    assert np.isclose(a.better[1], 1 - b.better[0])


def test_tuning_widens_the_interval_and_adds_no_seeds():
    x, sd = RNG(3).normal(0, 0.01, (8, 5)), np.zeros(8)
    sd[3] = 0.05
    without, with_tuning = contrasts(x, 0), contrasts(x, 0, sd)
    assert np.isclose(with_tuning.error[3] ** 2, without.error[3] ** 2 + 0.05**2)
    assert np.allclose(with_tuning.error[4:], without.error[4:])
    assert (contrasts(np.ones((8, 5)), 0, sd).error[3], with_tuning.p[3] > 0.3) == (0.05, True)


def test_a_missing_seed_is_a_seed_that_was_not_run():
    x = RNG(4).normal(size=(8, 5))
    x[:, 4] = np.nan
    assert np.allclose(contrasts(x, 0).p, contrasts(x[:, :4], 0).p, equal_nan=True)


def test_a_diverged_run_counts_as_worse_than_any_loss():
    x = RNG(5).normal(0, 0.1, (8, 5))
    x[1] -= 1.0
    assert contrasts(x, 0).better[1] > 0.99
    x[1, 2] = np.inf
    result = contrasts(x, 0)
    assert (result.p[1], result.better[1]) == (1.0, 0.5)
    assert np.isclose(result.mean[1], (x[1] - x[0])[[0, 1, 3, 4]].mean())
    worse = RNG(6).normal(0, 0.1, (8, 5))
    worse[1] += 0.15
    before = contrasts(worse, 0).p[1]
    worse[2] += 3.0
    worse[1, 2] = np.inf
    assert contrasts(worse, 0).p[1] < before
