"""Context windows and reading orders of sequences."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.functional.sequence import previous_vectors, reversed_positions
from tests.tiny import quick

LENGTHS = torch.tensor([5, 2, 1, 4])


@quick
@given(st.integers(1, 6), st.integers(1, 7), st.sampled_from([1.0, 0.5]))
def test_previous_vectors_are_nearest_first_and_padded_before_the_start(
    length: int, count: int, pad: float
) -> None:
    x = torch.randn(2, length, 3)
    found = previous_vectors(x, count, pad=pad)
    assert found.shape == (2, length, count, 3)
    for t in range(length):
        for j in range(count):
            expected = x[:, t - j] if t >= j else torch.full((2, 3), pad)
            assert found[:, t, j].equal(expected)


def test_all_words_are_reversed_without_an_end_token() -> None:
    expected = [[0, 4, 3, 2, 1], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 3, 2, 1, 4]]
    assert reversed_positions(LENGTHS, 5, keep_last=False).tolist() == expected


def test_the_end_token_stays_last() -> None:
    expected = [[0, 3, 2, 1, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 2, 1, 3, 4]]
    assert reversed_positions(LENGTHS, 5, keep_last=True).tolist() == expected


@pytest.mark.parametrize("keep_last", [False, True])
def test_reversing_twice_changes_nothing(*, keep_last: bool) -> None:
    order = reversed_positions(LENGTHS, 7, keep_last=keep_last)
    assert order.gather(1, order).equal(torch.arange(7).expand(4, -1))
