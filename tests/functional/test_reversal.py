"""Where a reader from the right looks: a permutation of what is real, its own inverse."""

import pytest
import torch

from lmzoo.functional.reversal import reversed_positions

LENGTHS = torch.tensor([5, 2, 1, 4])


def test_without_an_end_all_words_are_turned_round() -> None:
    expected = [[0, 4, 3, 2, 1], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 3, 2, 1, 4]]
    assert reversed_positions(LENGTHS, 5, ends=False).tolist() == expected


def test_with_an_end_the_last_token_stays_last() -> None:
    expected = [[0, 3, 2, 1, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 2, 1, 3, 4]]
    assert reversed_positions(LENGTHS, 5, ends=True).tolist() == expected


@pytest.mark.parametrize("ends", [False, True])
def test_turning_twice_changes_nothing(*, ends: bool) -> None:
    order = reversed_positions(LENGTHS, 7, ends=ends)
    assert order.gather(1, order).equal(torch.arange(7).expand(4, -1))
