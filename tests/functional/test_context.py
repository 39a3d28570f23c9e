"""The window before each token, one vector at a time."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.functional.context import previous
from tests.tiny import quick


@quick
@given(st.integers(1, 6), st.integers(1, 7), st.sampled_from([1.0, 0.5]))
def test_nearest_comes_first_and_the_pad_stands_before_the_start(
    length: int, count: int, pad: float
) -> None:
    x = torch.randn(2, length, 3)
    found = previous(x, count, pad=pad)
    assert found.shape == (2, length, count, 3)
    for t in range(length):
        for j in range(count):
            expected = x[:, t - j] if t >= j else torch.full((2, 3), pad)
            assert found[:, t, j].equal(expected)
