"""Pieces that are needed at a time never share memory; what was moved is what it was."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.train.packed.memory_plan import ALIGN, MemoryBlock, MemoryTrace, laid

LIVES = st.lists(
    st.tuples(st.integers(1, 500), st.integers(0, 30), st.integers(0, 30)).map(
        lambda one: (one[0], one[1], one[1] + one[2])
    ),
    max_size=25,
)


@given(LIVES)
def test_what_is_needed_at_a_time_does_not_overlap(lives):
    offsets, size = laid(lives)
    placed = list(zip(offsets, lives, strict=True))
    assert all(offset % ALIGN == 0 for offset in offsets)
    assert all(offset + length <= size for offset, (length, *_) in placed)
    for i, (one, (length, made, last)) in enumerate(placed):
        for other, (width, begin, end) in placed[:i]:
            apart = one + length <= other or other + width <= one
            assert apart or last < begin or end < made


def test_what_is_not_needed_any_more_makes_room():
    offsets, size = laid([(100, 0, 1), (64, 0, 4), (60, 2, 3), (120, 3, 4), (64, 3, 5)])
    assert offsets == [0, 128, 0, 192, 64]
    assert size == 192 + 128


def _pieces(*tensors):
    pieces = MemoryTrace()
    for i, tensor in enumerate(tensors):
        pieces.made(tensor, i)
    return pieces


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_views_and_arrays_are_moved_with_their_memory(dtype):
    first, second = torch.ones(7).double(), torch.arange(24).reshape(2, 3, 4).to(dtype)
    pieces = _pieces(first, second)
    offsets, size = pieces.laid()
    arena = MemoryBlock(size)
    views = [second, second[1], second.mT, second[:, 1:, 2], second[:, :, :0]]
    moved = [arena.move(view, pieces, offsets) for view in views]
    moved[0].copy_(second)
    for view, other in zip(views, moved, strict=True):
        assert torch.equal(view, other)
        assert view.stride() == other.stride()
        assert other.numel() == 0 or other.data_ptr() != view.data_ptr()
    array = second.numpy()[1:, ::2]
    again = arena.move(array, pieces, offsets)
    assert np.array_equal(again, array)
    again[...] = 0
    assert not moved[0][1, ::2].any()
    assert second[1, 2].any()


def test_what_the_step_found_is_not_moved():
    pieces, weight, made = MemoryTrace(), torch.ones(3), torch.ones(3)
    pieces.used(weight, 0)
    pieces.made(weight[1:], 0)
    pieces.made(made, 1)
    offsets, size = pieces.laid()
    arena = MemoryBlock(size)
    assert size == ALIGN
    assert arena.move(weight, pieces, offsets) is weight
    array = weight.numpy()
    assert arena.move(array, pieces, offsets) is array
    assert arena.move(made, pieces, offsets) is not made


def test_a_view_without_numbers_is_of_its_piece():
    made = torch.ones(2, 3)
    pieces = _pieces(made, made[:, :0], made[:, :0])
    pieces.used(made, 7)
    (piece,) = pieces._found.values()
    assert (piece.made, piece.last) == (0, 7)


def test_what_somebody_keeps_is_told():
    made = torch.ones(3)
    pieces = _pieces(made, torch.ones(2))
    assert pieces.kept()
    del made
    assert not pieces.kept()
