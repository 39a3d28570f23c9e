"""Effects and interactions of switches: planted ones are found, in whole designs and in holes."""

from itertools import combinations

import numpy as np
import pytest

from lmzoo.analysis.contrasts import cubes, effect, effect_alone, effect_given, interaction
from lmzoo.analysis.regression import explained, least_squares, model_terms
from tests.analysis.factorial import full, mgu

RNG = np.random.default_rng
PAIRS = list(combinations(range(8), 2))


def two_way(patterns, rng):
    """Losses that are exactly a sum of effects and interactions of thrown switches."""
    F = patterns.shape[1]
    own, both = rng.normal(size=F), np.triu(rng.normal(size=(F, F)), 1)
    x = patterns.astype(float)
    return own, both, x @ own + np.einsum("pi,ij,pj->p", x, both, x)


def test_a_square_by_hand():
    """Intact 1; first 3, second 6, both 4: the first costs 2 alone and gains 2 with the second."""
    patterns = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], bool)
    y = np.array([1.0, 3.0, 6.0, 4.0])
    assert effect(patterns, 0) @ y == 0.0
    assert effect(patterns, 1) @ y == 3.0
    assert effect_alone(patterns, 0) @ y == 2.0
    assert interaction(patterns, 0, 1) @ y == -4.0
    assert effect_given(patterns, 0, 1, thrown=False) @ y == 2.0
    assert effect_given(patterns, 0, 1, thrown=True) @ y == -2.0
    assert effect_given(patterns, 1, 0, thrown=True) @ y == 1.0


def test_a_whole_design_is_the_regressions():
    patterns = RNG(0).permutation(full(4))
    model = least_squares(patterns)
    for i in range(4):
        assert np.allclose(model[i,], effect(patterns, i))
    for i, j in combinations(range(4), 2):
        assert np.allclose(model[i, j], interaction(patterns, i, j))


@pytest.mark.parametrize("design", [full(5), mgu()], ids=["full", "mgu"])
def test_planted_interactions_are_found_exactly(design):
    patterns = RNG(1).permutation(design)
    _, both, y = two_way(patterns, RNG(2))
    model = least_squares(patterns)
    for i, j in combinations(range(patterns.shape[1]), 2):
        if not len(cubes(patterns, (i, j))):
            assert np.isnan(interaction(patterns, i, j)).all()
            continue
        assert np.isclose(interaction(patterns, i, j) @ y, both[i, j])
        assert np.isclose(model[i, j] @ y, both[i, j])
        given = [effect_given(patterns, i, j, thrown=t) @ y for t in (False, True)]
        assert np.isclose(given[1] - given[0], both[i, j])


def test_both_effects_are_the_mean_over_pairs_where_no_three_interact():
    patterns = mgu()
    own, both, y = two_way(patterns, RNG(3))
    model, both = least_squares(patterns), both + both.T
    place = {tuple(p): n for n, p in enumerate(patterns.astype(int))}
    for i in range(8):
        bases = [p for p in place if p[i] == 0 and (*p[:i], 1, *p[i + 1 :]) in place]
        mean = np.mean([own[i] + both[i] @ base for base in bases])
        assert np.isclose(effect(patterns, i) @ y, mean)
        assert np.isclose(model[i,] @ y, mean)
        assert np.isclose(effect_alone(patterns, i) @ y, own[i])


def test_the_units_holes_are_where_the_predicates_say():
    """0 with 3 or 7 is blind, 6 with 7 is zero, 3, 4, 5 mean nothing without a write."""
    patterns = mgu()
    absent = {(i, j) for i, j in PAIRS if not len(cubes(patterns, (i, j)))}
    assert absent == {(0, 3), (0, 7), (6, 7), (3, 7), (4, 7), (5, 7)}
    assert {t for t in PAIRS if t not in model_terms(patterns)} == absent
    model = least_squares(patterns)
    assert {t for t in PAIRS if np.isnan(model[t]).all()} == absent
    assert not np.isnan([model[i,] for i in range(8)]).any()


def test_what_always_comes_together_cannot_be_told_apart():
    patterns = np.array([[0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]], bool)
    model = least_squares(patterns)
    assert np.isnan(model[0,]).all()
    assert np.isnan(effect(patterns, 0)).all()
    assert np.allclose(model[2,], [-0.5, -0.5, 0.5, 0.5])


def test_pairs_explain_what_switches_alone_do_not():
    patterns = mgu()
    own, _, y = two_way(patterns, RNG(4))
    assert np.isclose(explained(patterns, y, pairs=True), 1)
    assert explained(patterns, y, pairs=False) < 0.9
    assert np.isclose(explained(patterns, patterns @ own, pairs=False), 1)
    assert np.isnan(explained(patterns, np.ones(92), pairs=True))
