"""Equal results of different seeds and points."""

from itertools import permutations

import numpy as np
import pytest

from lmzoo.lab.statistics.compared import compared
from lmzoo.lab.statistics.draws import _spread_over_orders, equal_draws, follow_line, independent
from lmzoo.lab.statistics.power import planned_seeds
from tests.cases import cases
from tests.lab.statistics.normal_draws import normal

RNG = np.random.default_rng
CASES = "lab/statistics/cases.toml"


@cases(CASES, "equal_draws", "losses, seeds, pairs")
def test_equal_draws_are_found(losses, seeds, pairs):
    found_seeds, found_pairs = equal_draws(losses)
    assert found_seeds == seeds
    assert list(map(list, found_pairs)) == pairs


def test_copies_of_a_draw_count_once_in_verdict_and_plan():
    """Four workers begin with one constant seed: eight runs have four values."""
    # With all digits: numbers on a grid have no copies.
    draws = 0.01 * normal(0, 2, 4) / 3.0000001
    draws[1] += 0.003
    # Each value twice.
    copied = np.repeat(draws, 2, axis=1)
    is_counted = np.isfinite(independent(copied))
    assert is_counted.sum(1).tolist() == [4, 4]
    expected = compared(draws, 0)
    found = compared(copied, 0)
    assert found.p[1] == pytest.approx(expected.p[1])
    expected = planned_seeds(draws, 0, 0.01)
    planned = planned_seeds(copied, 0, 0.01)
    assert planned.seeds[1] == expected.seeds[1]


@cases(CASES, "without_copies", "losses")
def test_numbers_on_a_grid_and_counts_have_no_copies(losses):
    is_counted = np.isfinite(independent(losses))
    assert is_counted.all()


NOISE = normal(0, 2, 40)
EQUAL = np.ones((2, 12))


@pytest.fixture
def following():
    """Runs that share half of their noise with the next one."""
    return NOISE[:, 1:] + NOISE[:, :-1]


def test_runs_that_follow_each_other_are_said(following):
    assert "correlation 0." in follow_line(following)


def test_a_run_that_diverges_hides_no_others_that_follow_each_other(following):
    following[0, 5] = np.inf
    assert follow_line(following)


@pytest.mark.parametrize("losses", [NOISE, NOISE[:, :2], EQUAL])
def test_independent_few_and_equal_runs_do_not_follow_each_other(losses):
    assert follow_line(losses) == ""


def test_points_that_share_the_noise_of_a_seed_count_as_one():
    rng = RNG(0)
    said = 0
    for _ in range(200):
        shared = rng.normal(size=(1, 8))
        own = 0.3 * rng.normal(size=(6, 8))
        said += bool(follow_line(shared + own))
    # 1 % are chance; a spread that takes the points as independent says 28.
    assert said <= 4


@pytest.mark.parametrize("points", [3, 7])
def test_the_spread_is_that_over_all_orders_of_the_seeds(points):
    z = normal(0, points, 5)
    z -= z.mean(1, keepdims=True)
    gram = z.T @ z
    sums = []
    for order in permutations(range(5)):
        before = order[:-1]
        after = order[1:]
        neighbours = gram[before, after]
        sums.append(neighbours.sum())
    spread = np.std(sums)
    assert _spread_over_orders(z) == pytest.approx(spread)


def test_many_runs_need_no_table_of_all_pairs():
    # The products of all pairs of runs would need 80 GB.
    assert not follow_line(normal(0, 1, 100_000))


def test_eight_losses_that_only_rise_are_said():
    assert follow_line([range(8)])
