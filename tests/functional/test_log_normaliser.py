"""Log-normalisers in tiles: large logits, large vocabularies and little memory."""

from math import log

import pytest
import torch

from lmzoo.functional import log_normaliser, tied_softmax
from lmzoo.functional.log_normaliser import log_normalisers
from tests.largest_tensor import LargestTensorMode

NAIVE, TILED = 1 << 60, 0
"""Values of `naive_limit` that force one formula."""


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tiles so small that a few vectors and words need several, the last ones partial."""
    monkeypatch.setattr(log_normaliser, "TILE", {"cpu": (3, 4)})


def test_logits_whose_exponential_overflows() -> None:
    y, table = torch.full((1, 1), 1e3), torch.tensor([[1.0], [-1.0], [1.0]])
    assert log_normalisers(y, table, naive_limit=TILED).item() == pytest.approx(1e3 + log(2))
    assert log_normalisers(-y, table, naive_limit=TILED).item() == pytest.approx(1e3)


def test_no_tensor_has_an_element_per_vector_and_word() -> None:
    y, table = torch.randn(40, 2, requires_grad=True), torch.randn(50, 2, requires_grad=True)
    largest = []
    for limit in (TILED, NAIVE):
        with LargestTensorMode() as mode:
            log_normalisers(y, table, naive_limit=limit).sum().backward()
        largest.append(mode.max_numel)
    assert largest[0] <= 50 * 2
    assert largest[1] >= 40 * 50


def test_a_softmax_over_a_large_vocabulary_uses_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    y, table, words = torch.randn(3, 3), torch.randn(5, 3), torch.tensor([4, 0, 2])
    monkeypatch.setattr(tied_softmax, "MAX_WORDS", 4)
    expected = tied_softmax.naive_tied_log_prob(y, table, words)
    assert tied_softmax.tied_log_prob(y, table, words).equal(expected)
