"""Tuning curves against all outcomes of k draws, listed one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.lab.statistics.tuning_curves import probability_above, tuning_curve

LOSSES = st.lists(st.sampled_from([1.0, 1.5, 2.0, 4.0, np.inf]), min_size=1, max_size=4)


def bests(losses, k) -> np.ndarray:
    """The best of k draws with replacement, for each of the n^k outcomes."""
    return np.array([min(drawn) for drawn in itertools.product(losses, repeat=k)])


@given(LOSSES, LOSSES)
def test_curves_are_those_of_all_outcomes(losses, other):
    curve, against = tuning_curve(losses, 3), tuning_curve(other, 3)
    above = probability_above(curve, against)
    for k in (1, 2, 3):
        own, others = bests(losses, k), bests(other, k)
        assert curve.mean[k - 1] == pytest.approx(own.mean())
        for share in (0.1, 0.5, 0.9):
            expected = np.quantile(own, share, method="inverted_cdf")
            assert curve.quantile(share)[k - 1] == expected
        pairs = (own[:, None] > others).mean() + (own[:, None] == others).mean() / 2
        assert above[k - 1] == pytest.approx(pairs)


def test_more_runs_never_find_a_higher_loss():
    curve = tuning_curve([2.0, 1.0, 3.0, np.inf], 9)
    assert np.isinf(curve.mean).all(), "all runs may diverge"
    finite = tuning_curve([2.0, 1.0, 3.0, 5.0], 9)
    assert (np.diff(finite.mean) < 0).all()
