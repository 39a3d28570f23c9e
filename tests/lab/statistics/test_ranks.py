"""Ranks equal scipy's; rank intervals hold the true ranks."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from lmzoo.lab.statistics import ranks as module
from lmzoo.lab.statistics.contrasts import contrasts
from lmzoo.lab.statistics.noise import seed_noise
from lmzoo.lab.statistics.ranks import rank_intervals, ranks

RNG = np.random.default_rng
losses = st.one_of(st.floats(-10, 10).map(lambda x: round(x, 3)), st.sampled_from([np.nan, np.inf]))


@settings(max_examples=50)
@given(
    arrays(np.float64, array_shapes(max_dims=3, max_side=5), elements=st.floats(-2, 2).map(round))
)
def test_ranks_equal_scipys(values):
    values[values == 2] = np.inf  # the loss of a model that gives a token probability 0
    assert np.array_equal(ranks(values), stats.rankdata(values, method="min", axis=-1))


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


@pytest.mark.parametrize("tuning_sd", [0.0, 0.3])
@pytest.mark.parametrize(("seeds", "effect"), [(2, 0.0), (5, 1.0), (5, 4.0)])
def test_ranks_without_the_clear_tests_are_those_of_all_tests(
    seeds, effect, tuning_sd, monkeypatch
):
    rng = RNG(seeds)
    x = (
        rng.normal(size=(30, seeds))
        + rng.normal(size=(1, seeds))
        + effect * rng.normal(size=(30, 1))
    )
    x[3, 0], x[5, 1], x[7] = np.inf, np.nan, 1.25
    found, unread = rank_intervals(x, tuning_sd), []
    clear = module._clear

    def none_is_clear(*arguments):
        bounds = clear(*arguments)

        def unknown(point):
            p, mean = bounds(point)
            unread.append(np.isfinite(p).sum())
            return np.full_like(p, np.nan), mean

        return unknown

    monkeypatch.setattr(module, "_clear", none_is_clear)
    assert np.array_equal(found, rank_intervals(x, tuning_sd), equal_nan=True)
    assert np.mean(unread) > 10


@pytest.mark.parametrize("tuning_sd", [0.0, 2.0])
@pytest.mark.parametrize(("points", "seeds"), [(50, 2), (50, 3), (50, 8), (20, 5)])
def test_a_clear_test_has_the_p_that_is_said(points, seeds, tuning_sd):
    """Differences of all sizes: some have p near the level, others near that over the points."""
    rng, error = RNG(seeds), 0.05
    effects = rng.permutation(np.linspace(0, 4, points) ** 2)
    x = rng.normal(size=(points, seeds)) + rng.normal(size=seeds) + effects[:, None]
    x[0, 0] = np.nan
    tau, noise = np.full(points, tuning_sd), seed_noise(x)
    clear = module._clear(x, tau, noise, error)
    many = few = 0
    for point in range(points):
        p, mean = clear(point)
        said, found = ~np.isnan(p), contrasts(x, point, tau, noise=noise)
        other = np.arange(points) != point
        assert not said[(np.isnan(x) != np.isnan(x[point])).any(1)].any()
        assert np.allclose(mean[said & other], found.mean[said & other])
        assert (found.p[(p == 1) & other] >= error).all()
        assert (found.p[(p == 0) & other] < error / points).all()
        many, few = many + (p == 1).sum(), few + (p == 0).sum()
    assert many > points
    assert few > points or seeds == 2


def test_intervals_are_paired_by_seed():
    seed = RNG(7).normal(0, 10, 6)
    values = np.stack([seed, seed + 1, seed + 2]) + RNG(8).normal(0, 0.01, (3, 6))
    low, high = rank_intervals(values)
    assert low.tolist() == high.tolist() == [1, 2, 3]


def test_the_order_of_points_and_seeds_does_not_matter():
    values = RNG(9).normal(size=(7, 4)) + np.arange(7)[:, None]
    low, high = rank_intervals(values)
    rows, columns = RNG(1).permutation(7), RNG(2).permutation(4)
    assert np.array_equal(rank_intervals(values[rows][:, columns]), [low[rows], high[rows]])


def test_a_point_with_a_diverged_run_is_below_all_others():
    values = RNG(3).normal(3, 0.1, (5, 4))
    values[2] -= 2
    values[2, 1] = np.inf
    low, high = rank_intervals(values)
    assert (low[2], high[2]) == (5, 5)
    assert (np.delete(high, 2) <= 4).all()


def test_a_point_with_one_seed_is_undecided():
    values = np.array([[1.0, 1.1, 0.9], [2.0, np.nan, np.nan], [3.0, 3.1, 2.9]])
    low, high = rank_intervals(values)
    assert np.array_equal(low, [1, np.nan, 2], equal_nan=True)
    assert np.array_equal(high, [2, np.nan, 3], equal_nan=True)


def test_the_tuning_widens_the_intervals():
    values = RNG(4).normal(0, 0.01, (6, 4)) + 0.1 * np.arange(6)[:, None]
    assert np.array_equal(*rank_intervals(values))
    low, high = rank_intervals(values, np.full(6, 1.0))
    assert (low == 1).all()
    assert (high == 6).all()


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
