"""Positional encodings: sinusoids, and the ways of adding them."""

import math

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.blocks.positions import PositionalEncoding, Positions, sinusoids
from tests.cases import parametrize
from tests.tiny import FINE, assert_equal_single

T = 6
E = 8
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(2, T, E, generator=GENERATOR)


def encoding(kind):
    torch.manual_seed(1)
    return PositionalEncoding(kind, E, T, 0.5)


@parametrize("width", [1, 5, 8])
def test_sinusoids_follow_the_published_formula(width):
    table = sinusoids(40, width)
    places = [(0, 0), (1, 0), (7, width - 1), (39, width // 2)]
    for p, channel in places:
        # A pair of channels has one frequency.
        exponent = channel // 2 * 2 / width
        angle = p / 10000**exponent
        expected = math.sin(angle)
        if channel % 2:
            expected = math.cos(angle)
        found = table[p, channel].item()
        assert found == pytest.approx(expected, abs=FINE)
    assert table.abs().max() <= 1


def test_added_positions_scale_the_vectors_by_sqrt_width():
    positions = sinusoids(T, E).float()
    expected = E**0.5 * X + positions
    actual = encoding(Positions.ADD)(X)
    assert_equal_single(actual, expected)


def test_concat_with_identity_weights_equals_add():
    concat = encoding(Positions.CONCAT)
    expected = encoding(Positions.ADD)(X)
    difference = (concat(X) - expected).abs()
    assert difference.max() > 0.1
    # The sum of a vector and its position.
    both = torch.eye(E).repeat(1, 2)
    identity = {"weight": both, "bias": torch.zeros(E)}
    concat.fold.load_state_dict(identity)
    assert_equal_single(concat(X), expected)


def test_learned_positions_are_one_vector_per_position():
    learned = encoding(Positions.LEARNED)
    read = X[:, :4]
    expected = read + learned.table.weight[:4]
    assert learned(read).equal(expected)


def test_more_positions_than_are_learned_are_refused():
    learned = encoding(Positions.LEARNED)
    longer = torch.cat([X, X], dim=1)
    with pytest.raises(UserError, match=f"has {T} positions, got {2 * T}"):
        learned(longer)
