"""Equal results of different seeds and points."""

from itertools import permutations

import numpy as np
import pytest

from lmzoo.lab.statistics.compared import compared
from lmzoo.lab.statistics.draws import _spread_over_orders, equal_draws, follow_line, independent
from lmzoo.lab.statistics.power import planned_seeds
from tests.cases import cases

RNG = np.random.default_rng


@cases("lab/statistics/cases.toml", "equal_draws", "losses, seeds, pairs")
def test_equal_draws_are_found(losses, seeds, pairs):
    assert equal_draws(losses) == (seeds, [tuple(pair) for pair in pairs])


THIRD = 1 / 3.0000001
"""Losses with all digits."""


def test_copies_of_a_draw_count_once_in_verdict_and_plan():
    """Four workers begin with one constant seed: eight runs have four values."""
    draws = THIRD * RNG(0).normal(0, 0.01, (2, 4))
    draws[1] += 0.003
    copied = np.repeat(draws, 2, axis=1)
    values = np.isfinite(independent(copied)).sum(1)
    assert values.tolist() == [4, 4]
    p = compared(draws, 0).p[1]
    assert compared(copied, 0).p[1] == pytest.approx(p)
    planned = planned_seeds(draws, 0, 0.01).seeds[1]
    assert planned_seeds(copied, 0, 0.01).seeds[1] == planned


@pytest.mark.parametrize("row", [[0.75, 0.75, 0.5, 0.5], [THIRD] * 4, [1.2345, 1.2345, 2, 2]])
def test_numbers_on_a_grid_and_counts_have_no_copies(row):
    assert np.isfinite(independent([row])).all()


NOISE = RNG(0).normal(size=(2, 40))


@pytest.fixture
def following():
    """Runs that share half of their noise with the next one."""
    return NOISE[:, 1:] + NOISE[:, :-1]


def test_runs_that_follow_each_other_are_said(following):
    assert "correlation 0." in follow_line(following)


def test_a_run_that_diverges_hides_no_others_that_follow_each_other(following):
    following[0, 5] = np.inf
    assert follow_line(following)


@pytest.mark.parametrize("losses", [NOISE, NOISE[:, :2], [[1.0] * 12, [2.0] * 12]])
def test_independent_few_and_equal_runs_do_not_follow_each_other(losses):
    assert follow_line(losses) == ""


def test_points_that_share_the_noise_of_a_seed_count_as_one():
    rng = RNG(0)
    said = 0
    for _ in range(200):
        shared = rng.normal(size=(1, 8))
        own = 0.3 * rng.normal(size=(6, 8))
        said += bool(follow_line(shared + own))
    assert said <= 4  # 1 % are chance; a spread that takes the points as independent says 28


def test_the_spread_is_that_over_all_orders_of_the_seeds():
    z = RNG(0).normal(size=(3, 5))
    z -= z.mean(1, keepdims=True)
    gram = z.T @ z
    sums = []
    for order in permutations(range(5)):
        neighbours = gram[order[:-1], order[1:]]
        sums.append(neighbours.sum())
    assert _spread_over_orders(gram) == pytest.approx(np.std(sums))


def test_eight_losses_that_only_rise_are_said():
    assert follow_line([range(8)])
