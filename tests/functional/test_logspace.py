"""Mixtures by one matrix product equal the sum of exponentials."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.functional.logspace import exact_log_mixture, log_mixture
from lmzoo.laws.support import assert_close
from tests.tiny import FINE, quick


def naive(p: Tensor, b: Tensor) -> Tensor:
    """Compute the mixture with all terms in memory, (..., I, K, J)."""
    return torch.logsumexp(p.log()[..., None] + b[..., None, :, :], dim=-2)


@quick
@given(st.integers(1, 5), st.floats(0, 200), st.integers(0, 99))
def test_values_and_gradients_equal_the_naive_formula(size: int, spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator, "dtype": torch.float64}
    p = torch.softmax(torch.randn(2, 3, size, **draw), dim=-1).requires_grad_()
    b = (spread * torch.randn(2, size, 4, **draw)).requires_grad_()
    upstream = torch.randn(2, 3, 4, **draw)
    found, expected = log_mixture(p, b), naive(p, b)
    assert_close(found.detach(), expected.detach(), FINE * (1 + spread), "mixture")
    fast, slow = (torch.autograd.grad(y, (p, b), upstream) for y in (found, expected))
    for name, actual, reference in zip(("p", "b"), fast, slow, strict=True):
        assert_close(
            actual, reference, FINE * (1 + reference.abs().max().item()), f"gradient in {name}"
        )


def test_a_component_with_zero_weight_has_finite_gradients() -> None:
    p = torch.tensor([[1.0, 0.0]], requires_grad=True)
    b = torch.tensor([[-1e4], [0.0]], requires_grad=True)
    log_mixture(p, b).sum().backward()
    for leaf in (p, b):
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()


@quick
@given(st.integers(1, 5), st.floats(0, 2000), st.integers(0, 99))
def test_the_exact_mixture_has_no_floor(size: int, spread: float, seed: int) -> None:
    """In float32, where the product underflows below e^-87."""
    generator = torch.Generator().manual_seed(seed)
    log_p = torch.log_softmax(spread * torch.randn(2, 3, size, generator=generator), dim=-1)
    b = torch.log_softmax(spread * torch.randn(size, 4, generator=generator), dim=-1)
    log_p.requires_grad_()
    expected = torch.logsumexp(log_p[..., None] + b, dim=-2)
    found = exact_log_mixture(log_p, b)
    assert_close(found.detach(), expected.detach(), 1e-5 * (1 + spread), "mixture")
    gradients = (torch.autograd.grad(y.sum(), log_p)[0] for y in (found, expected))
    assert_close(*gradients, 1e-4, "gradient")
