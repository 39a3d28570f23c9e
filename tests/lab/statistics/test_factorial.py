"""Contrasts find planted effects, in full designs and in designs with gaps."""

from itertools import combinations

import numpy as np
import pytest

from lmzoo.lab.statistics.factorial import cubes, effect, effect_alone, effect_given, interaction
from tests.lab.analysis.factorial import full, mgu

RNG = np.random.default_rng
PAIRS = list(combinations(range(8), 2))


def two_way(patterns, rng):
    """Return effects, interactions, and losses that are exactly their sum."""
    F = patterns.shape[1]
    own, pairs = rng.normal(size=F), np.triu(rng.normal(size=(F, F)), 1)
    x = patterns.astype(float)
    return own, pairs, x @ own + np.einsum("pi,ij,pj->p", x, pairs, x)


def test_a_worked_example_of_two_switches():
    """Losses: none 1, first 3, second 6, both 4."""
    patterns = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], bool)
    y = np.array([1.0, 3.0, 6.0, 4.0])
    assert effect(patterns, 0) @ y == 0.0
    assert effect(patterns, 1) @ y == 3.0
    assert effect_alone(patterns, 0) @ y == 2.0
    assert interaction(patterns, 0, 1) @ y == -4.0
    assert effect_given(patterns, 0, 1, on=False) @ y == 2.0
    assert effect_given(patterns, 0, 1, on=True) @ y == -2.0
    assert effect_given(patterns, 1, 0, on=True) @ y == 1.0


@pytest.mark.parametrize("design", [full(5), mgu()], ids=["full", "mgu"])
def test_planted_interactions_are_estimated_exactly(design):
    patterns = RNG(1).permutation(design)
    _, planted, y = two_way(patterns, RNG(2))
    for i, j in combinations(range(patterns.shape[1]), 2):
        if not len(cubes(patterns, (i, j))):
            assert np.isnan(interaction(patterns, i, j)).all()
            continue
        assert np.isclose(interaction(patterns, i, j) @ y, planted[i, j])
        given = [effect_given(patterns, i, j, on=t) @ y for t in (False, True)]
        assert np.isclose(given[1] - given[0], planted[i, j])


def test_planted_effects_are_means_over_their_pairs():
    patterns = mgu()
    own, planted, y = two_way(patterns, RNG(3))
    planted = planted + planted.T
    index = {tuple(p): n for n, p in enumerate(patterns.astype(int))}
    for i in range(8):
        bases = [p for p in index if p[i] == 0 and (*p[:i], 1, *p[i + 1 :]) in index]
        mean = np.mean([own[i] + planted[i] @ base for base in bases])
        assert np.isclose(effect(patterns, i) @ y, mean)
        assert np.isclose(effect_alone(patterns, i) @ y, own[i])


def test_only_pairs_of_the_unit_without_valid_mutants_have_no_interaction():
    """Cut 0 with 3 or 7 ignores the input, 6 with 7 is zero, 3, 4, 5 have no effect with 7."""
    patterns = mgu()
    absent = {(i, j) for i, j in PAIRS if not len(cubes(patterns, (i, j)))}
    assert absent == {(0, 3), (0, 7), (6, 7), (3, 7), (4, 7), (5, 7)}


def test_switches_that_always_occur_together_have_no_effect_of_their_own():
    patterns = np.array([[0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]], bool)
    assert np.isnan(effect(patterns, 0)).all()
    assert np.allclose(effect(patterns, 2), [-0.5, -0.5, 0.5, 0.5])
