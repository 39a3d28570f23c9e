"""Log-normalisers computed in tiles, and their gradients, equal the naive formula."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.functional import log_normaliser
from lmzoo.functional.log_normaliser import log_normalisers
from tests.largest_tensor import LargestTensorMode
from tests.laws.support import assert_close
from tests.tiny import FINE, quick

NAIVE, TILED = 1 << 60, 0
"""Values of `naive_limit` that force one formula."""


def random(*shape: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (spread * x).requires_grad_()


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tiles so small that a few vectors and words need several, the last ones partial."""
    monkeypatch.setattr(log_normaliser, "TILE", {"cpu": (3, 4)})


@quick
@given(st.integers(1, 7), st.integers(1, 11), st.floats(0, 200), st.integers(0, 99))
def test_values_and_gradients_equal_the_naive_formula(
    vectors: int, words: int, spread: float, seed: int
) -> None:
    y, table = random(vectors, 3, seed=seed, spread=spread), random(words, 3, seed=seed + 1)
    upstream = random(vectors, seed=seed + 2).detach()
    tiled, naive = (log_normalisers(y, table, limit) for limit in (TILED, NAIVE))
    assert_close(tiled.detach(), naive.detach(), FINE * (1 + spread), "log normaliser")
    found, expected = (torch.autograd.grad(z, (y, table), upstream) for z in (tiled, naive))
    for name, actual, reference in zip(("y", "table"), found, expected, strict=True):
        assert_close(actual, reference, FINE * (1 + spread), f"gradient in {name}")


def test_logits_whose_exponential_overflows() -> None:
    y, table = torch.full((1, 1), 1e3), torch.tensor([[1.0], [-1.0], [1.0]])
    assert log_normalisers(y, table, naive_limit=TILED).item() == pytest.approx(1e3 + log(2))
    assert log_normalisers(-y, table, naive_limit=TILED).item() == pytest.approx(1e3)


def test_nan_in_one_vector_affects_only_its_own_result() -> None:
    y = random(5, 3).detach()
    y[3, 0] = torch.nan
    bad = log_normalisers(y, random(6, 3).detach(), naive_limit=TILED).isnan()
    assert bad.tolist() == [False, False, False, True, False]


def test_mapped_members_equal_the_naive_formula() -> None:
    y, table = random(3, 5, 2).detach(), random(3, 7, 2, seed=1).detach()

    def gradients(y: Tensor, table: Tensor, limit: int) -> tuple[Tensor, Tensor]:
        total = torch.func.grad(
            lambda *x: log_normalisers(*x, naive_limit=limit).square().sum(), argnums=(0, 1)
        )
        return total(y, table)

    for words, dim in ((table, 0), (table[0], None)):
        found, expected = (
            torch.vmap(gradients, in_dims=(0, dim, None))(y, words, limit)
            for limit in (TILED, NAIVE)
        )
        for actual, reference in zip(found, expected, strict=True):
            assert_close(actual, reference, FINE, f"gradient, table along {dim}")


def test_no_tensor_has_an_element_per_vector_and_word() -> None:
    y, table = random(40, 2), random(50, 2)
    with LargestTensorMode() as tiled:
        log_normalisers(y, table, naive_limit=TILED).sum().backward()
    with LargestTensorMode() as naive:
        log_normalisers(y, table, naive_limit=NAIVE).sum().backward()
    assert naive.max_numel >= 40 * 50
    assert tiled.max_numel <= 50 * 2
