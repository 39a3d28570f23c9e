"""Holm's correction: worked examples, its order, its error."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo.lab.statistics.contrasts import holm, unfair

RNG = np.random.default_rng


def test_holm_on_a_worked_example():
    # 4 tests: .005 x 4, .01 x 3, .03 x 2, .04 x 1 -> the last is raised to .06
    assert np.allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])


def test_holm_counts_only_tests():
    assert np.allclose(holm([0.02, np.nan, 0.5]), [0.04, np.nan, 0.5], equal_nan=True)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_between_raw_and_bonferroni_and_keeps_the_order(p):
    p, adjusted = np.array(p), holm(p)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(p * len(p), 1) + 1e-15).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()


def test_holm_rejects_a_true_hypothesis_once_in_twenty():
    p = RNG(6).uniform(size=(4000, 5))
    assert 0.04 < np.mean([holm(row).min() < 0.05 for row in p]) < 0.06


def test_a_point_is_unfair_if_another_architecture_or_the_reference_is_not_tuned():
    names = ["a", "a", "b", "b"]
    assert unfair(names, [True, False, False, True], 0).tolist() == [False, False, True, False]
    assert unfair(names, [False, True, False, True], 0).tolist() == [False, False, True, True]
