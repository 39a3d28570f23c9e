"""Rank intervals hold the true ranks."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from lmzoo.lab.statistics.contrasts import rank_intervals

RNG = np.random.default_rng
losses = st.one_of(st.floats(-10, 10).map(lambda x: round(x, 3)), st.sampled_from([np.nan, np.inf]))


NAN = np.nan
SPARSE = np.array([
    [1, NAN, NAN, 0, 0, 0], [0, 0, NAN, 0, 0, 1], [NAN, 0, 1, NAN, NAN, NAN],
    [0, 0, 0, 0, 0, 0], [0, NAN, NAN, 0, 0, 1], [0, NAN, NAN, 0, 0, 1.0],
])  # fmt: skip
"""A point without two shared seeds takes another point's shared seed with it."""


@settings(max_examples=50)
@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=losses))
@example(SPARSE)
def test_the_interval_includes_the_rank_and_needs_two_seeds(table):
    low, high = rank_intervals(table)
    finite = np.isfinite(table)
    assert (np.isnan(low) == (finite.sum(1) < 2)).all()
    complete = finite.all(1)
    if complete.all() and table.shape[1] > 1:
        means = table.mean(1).round(9)
        assert (low <= stats.rankdata(means, method="max")).all()
        assert (stats.rankdata(means, method="min") <= high).all()


def test_the_order_of_points_and_seeds_does_not_matter():
    values = RNG(9).normal(size=(7, 4)) + np.arange(7)[:, None]
    low, high = rank_intervals(values)
    rows, columns = RNG(1).permutation(7), RNG(2).permutation(4)
    assert np.array_equal(rank_intervals(values[rows][:, columns]), [low[rows], high[rows]])


def test_the_noise_of_rows_outside_the_family_changes_no_rank_inside():
    values = RNG(4).normal(size=(8, 3)) + np.arange(8)[:, None]
    family = np.arange(8) < 6
    values[~family] += 1e6
    noisy = values + np.where(family, 0.0, 1e4)[:, None] * [0.0, 1.0, 2.0]
    quiet, same = (np.array(rank_intervals(x, family=family))[:, family] for x in (values, noisy))
    assert np.array_equal(quiet, same)
    assert not np.array_equal(quiet, np.array(rank_intervals(noisy))[:, family])


@pytest.mark.parametrize(
    ("points", "seeds", "studies"), [(12, 3, 300), pytest.param(60, 5, 20, marks=pytest.mark.slow)]
)
def test_the_interval_of_the_worst_point_holds_its_rank(points, seeds, studies):
    """A bootstrap over three seeds holds it in 79 %."""
    rng, means = RNG(5), 0.5 * np.arange(points)
    held = np.zeros(points)
    for _ in range(studies):
        low, high = rank_intervals(means[:, None] + rng.normal(size=(points, seeds)))
        rank = np.arange(1, points + 1)
        held += (low <= rank) & (rank <= high)
    assert held.min() / studies >= (0.93 if studies > 100 else 0.8)
