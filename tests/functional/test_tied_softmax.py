"""The compiled softmax over products with a table equals the naive formula."""

from functools import partial
from math import nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap

from lmzoo.functional import tied_softmax
from lmzoo.functional.tied_softmax import naive_tied_log_prob, tied_log_prob
from tests.laws.support import assert_close
from tests.tiny import FINE, quick

FINE32 = 2e-5
"""The tolerance of gradients summed over up to a hundred positions in float32."""


def problem(
    positions: int, vocab: int, seed: int = 0, spread: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return contexts, a table and tokens, in float64."""
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    words = torch.randint(vocab, (positions,), generator=generator)
    return spread * draw(positions, 3), draw(vocab, 3), words


def results(formula, y: Tensor, table: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-probabilities, and the gradients of a weighted sum of them."""
    y, table = y.clone().requires_grad_(), table.clone().requires_grad_()
    out = formula(y, table, words)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype)
    return (out.detach(), *torch.autograd.grad((out.flatten() * weights).sum(), (y, table)))


def agree(y: Tensor, table: Tensor, words: Tensor, tolerance: float = FINE) -> None:
    found = results(tied_log_prob, y, table, words)
    expected = results(naive_tied_log_prob, y, table, words)
    for actual, reference, name in zip(found, expected, ("log p", "of y", "of table"), strict=True):
        assert_close(actual, reference, tolerance, name)


@quick
@given(st.integers(1, 100), st.integers(1, 40), st.floats(0, 200), st.integers(0, 99))
def test_values_and_gradients_equal_the_naive_formula(
    positions: int, vocab: int, spread: float, seed: int
) -> None:
    y, table, words = problem(positions, vocab, seed, spread)
    agree(y, table, words, FINE * (1 + spread))
    agree(y.float(), table.float(), words, FINE32 * (1 + spread))


def test_gradients_equal_finite_differences() -> None:
    y, table, words = problem(7, 4)
    inputs = y.requires_grad_(), table.requires_grad_()
    assert torch.autograd.gradcheck(lambda y, table: tied_log_prob(y, table, words), inputs)


@pytest.mark.parametrize("bad", [nan, -nan])
def test_nan_affects_only_its_own_positions(bad: float) -> None:
    y, table, words = problem(6, 4)
    for kind in (y, y.float()):
        kind[2, 1] = torch.tensor(bad).copysign(torch.tensor(bad))
        found = tied_log_prob(kind, table.to(kind), words)
        assert found.isnan().tolist() == [False, False, True, False, False, False]


def test_mapped_axes_equal_separate_calls() -> None:
    """Nested maps of values and gradients, and a table that is not mapped."""
    problems = [problem(5, 4, seed) for seed in range(6)]
    y, table, _ = (torch.stack(tensors) for tensors in zip(*problems, strict=True))
    y, table, words = y.unflatten(0, (2, 3)), table.unflatten(0, (2, 3)), problems[0][2]

    def objective(formula, y: Tensor, table: Tensor) -> Tensor:
        return (formula(y, table, words) ** 2).sum()

    def gradients(formula) -> tuple[Tensor, Tensor]:
        of = grad(partial(objective, formula), (0, 1))
        return vmap(vmap(of))(y, table)

    pairs = zip(gradients(tied_log_prob), gradients(naive_tied_log_prob), strict=True)
    for actual, reference in pairs:
        assert_close(actual, reference, FINE, "gradient")
    found = vmap(tied_log_prob, (0, None, None))(y[0], table[0, 0], words)
    assert_close(found[1], naive_tied_log_prob(y[0, 1], table[0, 0], words), FINE, "one axis")


def test_any_number_of_axes_in_any_memory_order() -> None:
    y, table, words = problem(24, 5)
    y, words = y.view(4, 6, 3).transpose(0, 1), words.view(4, 6).T
    agree(y, table.T.contiguous().T, words)
    agree(y[1, 2], table, words[1, 2])
    agree(y[:0], table, words[:0])


@pytest.mark.parametrize("formula", [tied_log_prob, naive_tied_log_prob])
@pytest.mark.parametrize("bad", [-9, 5])
def test_a_token_outside_the_vocabulary_raises(formula, bad: int) -> None:
    y, table, words = problem(6, 5)
    words[4] = bad
    with pytest.raises(IndexError):
        formula(y, table, words)


def test_large_vocabularies_use_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    y, table, words = problem(3, 5)
    monkeypatch.setattr(tied_softmax, "MAX_WORDS", 4)
    assert torch.equal(tied_log_prob(y, table, words), naive_tied_log_prob(y, table, words))
