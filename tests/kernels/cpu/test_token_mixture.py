"""The kernel of a gated mixture: gradients of the gate, and more positions than one block."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from lmzoo.functional.token_mixture import mixture_log_prob, naive_mixture_log_prob
from lmzoo.kernels.cpu.token_mixture import ROWS
from tests.laws.support import assert_close
from tests.tiny import FINE, quick

NAMES = ("log p", "of y", "of W", "of b", "of s")
Problem = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def problem(positions: int, width: int, components: int, vocab: int, seed: int = 0) -> Problem:
    """Return contexts, a gate, scores and tokens, in float64."""
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


def results(formula, *problem: Tensor) -> tuple[Tensor, ...]:
    """Return the log-probabilities, and the gradients of a weighted sum of them."""
    inputs = [tensor.clone().requires_grad_() for tensor in problem[:4]]
    out = formula(*inputs, problem[4])
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
def test_values_and_gradients_equal_the_naive_formula(
    positions: int, width: int, components: int, vocab: int, seed: int
) -> None:
    inputs = problem(positions, width, components, vocab, seed)
    found = results(mixture_log_prob, *inputs)
    expected = results(naive_mixture_log_prob, *inputs)
    for actual, naive, name in zip(found, expected, NAMES, strict=True):
        assert_close(actual, naive, FINE, name)


@pytest.mark.parametrize("positions", [1, 9, ROWS, 2 * ROWS + 1])
def test_mapped_members_equal_separate_calls(positions: int) -> None:
    members = [problem(positions, 3, 5, 4, seed) for seed in range(7)]
    stacked = [torch.stack(tensors) for tensors in zip(*members, strict=True)]
    found = results(vmap(mixture_log_prob), *stacked)
    weights = torch.linspace(-1, 2, 7 * positions, dtype=torch.float64).view(7, positions)
    for i, member in enumerate(members):
        inputs = [tensor.clone().requires_grad_() for tensor in member[:4]]
        out = naive_mixture_log_prob(*inputs, member[4])
        alone = (out.detach(), *torch.autograd.grad((out * weights[i]).sum(), inputs))
        for actual, separate, name in zip(found, alone, NAMES, strict=True):
            assert_close(actual[i], separate, FINE, f"{name} {i}")


def test_a_tiny_probability_is_computed_in_log_space() -> None:
    """Both components are equally likely, each with a factor of e^-150."""
    y, weight = torch.tensor([[30.0]]), torch.tensor([[-2.0], [1.0]])
    bias, s = torch.tensor([-60.0, 0.0]), torch.tensor([[0.0, -150.0], [-1.0, 0.0]])
    *tensors, token = *(x.double() for x in (y, weight, bias, s)), torch.tensor([0])
    exact = results(naive_mixture_log_prob, *tensors, token)
    found = results(mixture_log_prob, *(x.float() for x in tensors), token)
    assert exact[0].exp() < 1e-60, "p is not small enough to test anything"
    assert exact[4][0].tolist() == pytest.approx([-0.5, -0.5])
    for actual, expected, name in zip(found, exact, NAMES, strict=True):
        assert_close(actual.double(), expected, 1e-3, name)
