"""Mixtures, sums over splits and normalisers, against sums of exponentials."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.functional.inside import log_bilinear
from lmzoo.functional.logspace import exact_log_mixture, log_mixture, safe_log
from lmzoo.functional.tied_softmax import log_normalisers
from lmzoo.laws.tiny import assert_close
from tests.functional.forms import agree
from tests.largest_tensor import LargestTensorMode
from tests.tiny import FINE, quick


def naive(p: Tensor, b: Tensor) -> Tensor:
    """Compute the mixture with all terms in memory, (..., I, K, J)."""
    return torch.logsumexp(p.log()[..., None] + b[..., None, :, :], dim=-2)


@quick
@given(st.integers(1, 5), st.floats(0, 200), st.integers(0, 99))
def test_values_and_gradients_equal_the_naive_formula(size, spread, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator, "dtype": torch.float64}
    p = torch.softmax(torch.randn(2, 3, size, **draw), dim=-1).requires_grad_()
    b = (spread * torch.randn(2, size, 4, **draw)).requires_grad_()
    upstream = torch.randn(2, 3, 4, **draw)
    found = log_mixture(p, b)
    expected = naive(p, b)
    assert_close(found.detach(), expected.detach(), FINE * (1 + spread), "mixture")
    fast, slow = (torch.autograd.grad(y, (p, b), upstream) for y in (found, expected))
    agree([*fast], [*slow])


def test_a_component_with_zero_weight_has_finite_gradients():
    p = torch.tensor([[1.0, 0.0]], requires_grad=True)
    b = torch.tensor([[-1e4], [0.0]], requires_grad=True)
    gradients = torch.autograd.grad(log_mixture(p, b).sum(), (p, b))
    assert all(gradient.isfinite().all() for gradient in gradients)


@quick
@given(st.integers(1, 5), st.floats(0, 2000), st.integers(0, 99))
def test_the_exact_mixture_has_no_floor(size, spread, seed):
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


def draw(*shape, seed=0, zeros=False):
    """Return random logarithms, some of them of zero if `zeros`."""
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return x.masked_fill(torch.rand(shape, generator=generator) < 0.3 * zeros, -torch.inf)


def test_values_and_gradients_are_those_of_probabilities():
    """A logsumexp of −∞ would have NaN gradients."""
    inputs = [draw(2, 5, 4, seed=s, zeros=True).requires_grad_() for s in (1, 2)]
    inputs.append(draw(3, 4, 4, seed=3).requires_grad_())
    left, right, rules = (x.exp() for x in inputs)
    expected = torch.einsum("nkb,nkc,abc->na", left, right, rules).log()
    results = log_bilinear(*inputs), expected
    gradients = [torch.autograd.grad(y.sum(), inputs) for y in results]
    for a, b in (results, *zip(*gradients, strict=True)):
        torch.testing.assert_close(a, b, rtol=FINE, atol=FINE)


def test_splits_that_differ_by_hundreds_of_nats_add_exactly():
    """The longer part of a split is improbable, so each split needs its own scale."""
    nats = torch.arange(12.0)[:, None] * 40
    left = -nats + draw(12, 2).float()
    right = nats - 440 + draw(12, 2, seed=1).float()
    rules = draw(1, 2, 2, seed=2).float()
    terms = left.double()[:, :, None] + right.double()[:, None] + rules.double()[0]
    actual = log_bilinear(left, right, rules).double()
    torch.testing.assert_close(actual, terms.logsumexp((0, 1, 2))[None], rtol=1e-5, atol=0)


def test_an_empty_sum_is_minus_infinity_with_zero_gradient():
    left = torch.full((1, 2), -torch.inf, requires_grad=True)
    right = torch.zeros(1, 2, requires_grad=True)
    rules = torch.zeros(1, 2, 2, requires_grad=True)
    out = log_bilinear(left, right, rules)
    assert out.item() == -torch.inf
    gradients = torch.autograd.grad(torch.where(out.isfinite(), out, 0.0).sum(), (right, rules))
    assert all((g == 0).all() for g in gradients)
    assert safe_log(torch.zeros(2)).tolist() == [-torch.inf] * 2


NAIVE = 1 << 60
TILED = 0
"""Values of `naive_limit` that force one formula."""


def test_logits_whose_exponential_overflows():
    y = torch.full((1, 1), 1e3)
    table = torch.tensor([[1.0], [-1.0], [1.0]])
    assert log_normalisers(y, table, naive_limit=TILED).item() == pytest.approx(1e3 + log(2))
    assert log_normalisers(-y, table, naive_limit=TILED).item() == pytest.approx(1e3)


def test_no_tensor_has_an_element_per_vector_and_word():
    y = torch.randn(40, 2, requires_grad=True)
    table = torch.randn(50, 2, requires_grad=True)
    largest = []
    for limit in (TILED, NAIVE):
        with LargestTensorMode() as mode:
            log_normalisers(y, table, naive_limit=limit).sum().backward()
        largest.append(mode.max_numel)
    assert largest[0] <= 50 * 2
    assert largest[1] >= 40 * 50
