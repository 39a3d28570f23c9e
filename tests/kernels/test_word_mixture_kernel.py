"""The gate before the mixture: its gradients, and positions in their dozens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from lmzoo.functional.word_mixture import log_prob_of_words, plain
from lmzoo.kernels.cpu.word_mixture import ROWS
from tests.laws.ask import same
from tests.tiny import FINE, quick

WHAT = ("log p", "of y", "of W", "of b", "of s")
Problem = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def problem(positions: int, width: int, components: int, vocab: int, seed: int = 0) -> Problem:
    """Contexts, a gate, scores and words, in float64."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (positions, width), (components, width), (components,), (vocab, components)
    draws = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    y, weight, bias, s = draws
    return (
        y,
        weight,
        bias,
        s.log_softmax(0),
        torch.randint(vocab, (positions,), generator=generator),
    )


def solved(formula, *asked: Tensor) -> tuple[Tensor, ...]:
    """Log-probabilities, and what a weighted sum of them has as gradients of all but the words."""
    inputs = [one.clone().requires_grad_() for one in asked[:4]]
    out = formula(*inputs, asked[4])
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype)
    return (out.detach(), *torch.autograd.grad((out.flatten() * weights).sum(), inputs))


@quick
@given(
    st.one_of(st.integers(1, 30), st.integers(ROWS - 1, 3 * ROWS)),
    st.integers(1, 6),
    st.integers(1, 20),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_values_and_gradients_are_the_plain_ones(
    positions: int, width: int, components: int, vocab: int, seed: int
) -> None:
    asked = problem(positions, width, components, vocab, seed)
    found = solved(log_prob_of_words, *asked)
    for one, other, what in zip(found, solved(plain, *asked), WHAT, strict=True):
        same(one, other, FINE, what)


@pytest.mark.parametrize("positions", [1, 9, ROWS, 2 * ROWS + 1])
def test_members_are_each_alone(positions: int) -> None:
    members = [problem(positions, 3, 5, 4, seed) for seed in range(7)]
    together = [torch.stack(some) for some in zip(*members, strict=True)]
    found = solved(vmap(log_prob_of_words), *together)
    weights = torch.linspace(-1, 2, 7 * positions, dtype=torch.float64).view(7, positions)
    for i, member in enumerate(members):
        inputs = [one.clone().requires_grad_() for one in member[:4]]
        out = plain(*inputs, member[4])
        alone = (out.detach(), *torch.autograd.grad((out * weights[i]).sum(), inputs))
        for one, other, what in zip(found, alone, WHAT, strict=True):
            same(one[i], other, FINE, f"{what} {i}")


def test_where_p_is_too_small_the_gate_is_made_again() -> None:
    """The way back has no logits; here e^-150 of one component and of the other are as likely."""
    y, weight = torch.tensor([[30.0]]), torch.tensor([[-2.0], [1.0]])
    bias, s = torch.tensor([-60.0, 0.0]), torch.tensor([[0.0, -150.0], [-1.0, 0.0]])
    asked = (*(one.double() for one in (y, weight, bias, s)), torch.tensor([0]))
    exact = solved(plain, *asked)
    found = solved(log_prob_of_words, *(one.float() for one in asked[:4]), asked[4])
    assert exact[0].exp() < 1e-60, "p is not too small: the test tests nothing"
    assert exact[4][0].tolist() == pytest.approx([-0.5, -0.5])
    for one, other, what in zip(found, exact, WHAT, strict=True):
        same(one.double(), other, 1e-3, what)
