"""Positional encodings: sinusoids, and the ways of adding them."""

import math

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.blocks.positions import PositionalEncoding, Positions, sinusoids
from tests.tiny import FINE, assert_equal_single

T = 6
E = 8
X = torch.randn(2, T, E, generator=torch.Generator().manual_seed(0))


def encoding(kind: Positions) -> PositionalEncoding:
    torch.manual_seed(1)
    return PositionalEncoding(kind, E, T, 0.5)


@pytest.mark.parametrize("width", [1, 5, 8])
def test_sinusoids_follow_the_published_formula(width):
    table = sinusoids(40, width)
    for p, channel in ((0, 0), (1, 0), (7, width - 1), (39, width // 2)):
        angle = p / 10000 ** (channel // 2 * 2 / width)
        if channel % 2:
            expected = math.cos(angle)
        else:
            expected = math.sin(angle)
        assert table[p, channel].item() == pytest.approx(expected, abs=FINE)
    assert table.abs().max() <= 1


def test_added_positions_scale_the_vectors_by_sqrt_width():
    expected = E**0.5 * X + sinusoids(T, E).float()
    assert_equal_single(encoding(Positions.ADD)(X), expected)


def test_concat_with_identity_weights_equals_add():
    concat = encoding(Positions.CONCAT)
    assert (concat(X) - encoding(Positions.ADD)(X)).abs().max() > 0.1
    both = torch.eye(E).repeat(1, 2)
    concat.fold.load_state_dict({"weight": both, "bias": torch.zeros(E)})
    assert_equal_single(concat(X), encoding(Positions.ADD)(X))


def test_learned_positions_are_one_vector_per_position():
    learned = encoding(Positions.LEARNED)
    expected = X[:, :4] + learned.table.weight[:4]
    assert learned(X[:, :4]).equal(expected)


def test_more_positions_than_are_learned_are_refused():
    learned = encoding(Positions.LEARNED)
    longer = torch.cat([X, X], dim=1)
    with pytest.raises(UserError, match=f"has {T} positions, got {2 * T}"):
        learned(longer)
