"""Positional encodings: sinusoids, and the ways of adding them."""

import math

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.blocks.positions import PositionalEncoding, Positions, sinusoids
from tests.laws.support import assert_close
from tests.tiny import CLOSE, FINE

T, E = 6, 8
X = torch.randn(2, T, E, generator=torch.Generator().manual_seed(0))


def encoding(kind: Positions) -> PositionalEncoding:
    torch.manual_seed(1)
    return PositionalEncoding(kind, E, T, 0.5)


@pytest.mark.parametrize("width", [1, 5, 8])
def test_sinusoids_follow_the_published_formula(width: int) -> None:
    table = sinusoids(40, width)
    for p, channel in ((0, 0), (1, 0), (7, width - 1), (39, width // 2)):
        angle = p / 10000 ** (channel // 2 * 2 / width)
        expected = math.cos(angle) if channel % 2 else math.sin(angle)
        assert table[p, channel].item() == pytest.approx(expected, abs=FINE)
    assert table.abs().max() <= 1


@pytest.mark.parametrize("k", [1, 3, 10])
def test_a_shift_rotates_each_pair_by_its_own_angle(k: int) -> None:
    sin, cos = sinusoids(40, E).unflatten(1, (-1, 2)).unbind(-1)
    angle = k / 10000 ** (torch.arange(0, E, 2, dtype=torch.float64) / E)
    rotated = sin * angle.cos() + cos * angle.sin(), cos * angle.cos() - sin * angle.sin()
    assert_close(sin[k:], rotated[0][:-k], FINE, "sines")
    assert_close(cos[k:], rotated[1][:-k], FINE, "cosines")


def test_added_positions_scale_the_vectors_by_sqrt_width() -> None:
    expected = E**0.5 * X + sinusoids(T, E).float()
    assert_close(encoding(Positions.ADD)(X), expected, CLOSE, "sum")


def test_concat_with_identity_weights_equals_add() -> None:
    concat = encoding(Positions.CONCAT)
    assert (concat(X) - encoding(Positions.ADD)(X)).abs().max() > 0.1
    identity = torch.eye(E)
    concat.fold.load_state_dict(
        {"weight": torch.cat([identity, identity], dim=1), "bias": torch.zeros(E)}
    )
    assert_close(concat(X), encoding(Positions.ADD)(X), CLOSE, "folded")


def test_learned_positions_are_one_vector_per_position() -> None:
    learned = encoding(Positions.LEARNED)
    assert_close(learned(X[:, :4]), X[:, :4] + learned.table.weight[:4], 0, "sum")
    longer = torch.cat([X, X], dim=1)
    with pytest.raises(UserError, match=f"has {T} positions, got {2 * T}"):
        learned(longer)


def test_positions_none_changes_nothing() -> None:
    assert_close(encoding(Positions.NONE)(X), X, 0, "vectors")


@pytest.mark.parametrize("kind", [Positions.ADD, Positions.CONCAT, Positions.LEARNED])
def test_equal_tokens_differ_by_position(kind: Positions) -> None:
    encoded = encoding(kind)(X[:, :1].expand(-1, T, -1))
    assert (encoded[:, 1:] - encoded[:, :1]).abs().amax(-1).min() > 0.1
