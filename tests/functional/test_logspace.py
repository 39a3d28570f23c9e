"""Mixtures by one matrix product equal the plain sum of exponentials."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.functional.logspace import log_mixture
from tests.laws.ask import same
from tests.tiny import FINE, quick


def plain(p: Tensor, b: Tensor) -> Tensor:
    """Every term written out, (..., I, K, J)."""
    return torch.logsumexp(p.log()[..., None] + b[..., None, :, :], dim=-2)


@quick
@given(st.integers(1, 5), st.floats(0, 200), st.integers(0, 99))
def test_values_and_gradients_are_the_plain_sums(size: int, spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator, "dtype": torch.float64}
    p = torch.softmax(torch.randn(2, 3, size, **draw), dim=-1).requires_grad_()
    b = (spread * torch.randn(2, size, 4, **draw)).requires_grad_()
    slope = torch.randn(2, 3, 4, **draw)
    found, expected = log_mixture(p, b), plain(p, b)
    same(found.detach(), expected.detach(), FINE * (1 + spread), "mixture")
    fast, slow = (torch.autograd.grad(y, (p, b), slope) for y in (found, expected))
    for name, ours, theirs in zip(("p", "b"), fast, slow, strict=True):
        same(ours, theirs, FINE * (1 + theirs.abs().max().item()), f"gradient in {name}")


def test_a_part_without_weight_gives_no_infinite_gradient() -> None:
    p = torch.tensor([[1.0, 0.0]], requires_grad=True)
    b = torch.tensor([[-1e4], [0.0]], requires_grad=True)
    log_mixture(p, b).sum().backward()
    for leaf in (p, b):
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()
