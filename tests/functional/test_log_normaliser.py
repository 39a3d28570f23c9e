"""Log-normalisers made a tile at a time equal the plain formula, and so do their gradients."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.functional import log_normaliser
from lmzoo.functional.log_normaliser import log_normalisers
from tests.largest import Largest
from tests.laws.ask import same
from tests.tiny import FINE, quick

NEVER, ALWAYS = 1 << 60, 0
"""Values of `plain`: the formula is always plain, or never."""


def drawn(*shape: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (spread * x).requires_grad_()


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven vectors and eleven words then make several tiles, the last ones cut short."""
    monkeypatch.setattr(log_normaliser, "TILE", {"cpu": (3, 4)})


@quick
@given(st.integers(1, 7), st.integers(1, 11), st.floats(0, 200), st.integers(0, 99))
def test_values_and_gradients_are_the_plain_ones(
    vectors: int, words: int, spread: float, seed: int
) -> None:
    y, table = drawn(vectors, 3, seed=seed, spread=spread), drawn(words, 3, seed=seed + 1)
    slope = drawn(vectors, seed=seed + 2).detach()
    tiled, plain = (log_normalisers(y, table, plain=p) for p in (ALWAYS, NEVER))
    same(tiled.detach(), plain.detach(), FINE * (1 + spread), "log normaliser")
    ours, theirs = (torch.autograd.grad(z, (y, table), slope) for z in (tiled, plain))
    for name, one, other in zip(("y", "table"), ours, theirs, strict=True):
        same(one, other, FINE * (1 + spread), f"gradient in {name}")


def test_gradients_are_slopes() -> None:
    inputs = drawn(2, 4, 3), drawn(6, 3, seed=1)
    assert torch.autograd.gradcheck(lambda *x: log_normalisers(*x, plain=ALWAYS), inputs)


def test_logits_that_no_exponential_holds() -> None:
    y, table = torch.full((1, 1), 1e3), torch.tensor([[1.0], [-1.0], [1.0]])
    assert log_normalisers(y, table, plain=ALWAYS).item() == pytest.approx(1e3 + log(2))
    assert log_normalisers(-y, table, plain=ALWAYS).item() == pytest.approx(1e3)


def test_one_bad_vector_spoils_its_own_number_alone() -> None:
    y = drawn(5, 3).detach()
    y[3, 0] = torch.nan
    bad = log_normalisers(y, drawn(6, 3).detach(), plain=ALWAYS).isnan()
    assert bad.tolist() == [False, False, False, True, False]


def test_members_of_a_mapped_call_are_each_their_own() -> None:
    y, table = drawn(3, 5, 2).detach(), drawn(3, 7, 2, seed=1).detach()

    def slopes(y: Tensor, table: Tensor, plain: int) -> tuple[Tensor, Tensor]:
        total = torch.func.grad(
            lambda *x: log_normalisers(*x, plain=plain).square().sum(), argnums=(0, 1)
        )
        return total(y, table)

    for words, dim in ((table, 0), (table[0], None)):
        ours, theirs = (
            torch.vmap(slopes, in_dims=(0, dim, None))(y, words, plain) for plain in (ALWAYS, NEVER)
        )
        for one, other in zip(ours, theirs, strict=True):
            same(one, other, FINE, f"gradient, table along {dim}")


def test_no_tensor_holds_a_number_for_every_vector_and_word() -> None:
    y, table = drawn(40, 2), drawn(50, 2)
    with Largest() as tiled:
        log_normalisers(y, table, plain=ALWAYS).sum().backward()
    with Largest() as plain:
        log_normalisers(y, table, plain=NEVER).sum().backward()
    assert plain.numbers >= 40 * 50
    assert tiled.numbers <= 50 * 2
