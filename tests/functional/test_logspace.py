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
    terms = p.log()[..., None] + b[..., None, :, :]
    return torch.logsumexp(terms, dim=-2)


@quick
@given(st.integers(1, 5), st.floats(0, 200), st.integers(0, 99))
def test_values_and_gradients_equal_the_naive_formula(size, spread, seed):
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64}
    p = torch.softmax(torch.randn(2, 3, size, **options), dim=-1).requires_grad_()
    b = (spread * torch.randn(2, size, 4, **options)).requires_grad_()
    upstream = torch.randn(2, 3, 4, **options)
    found = log_mixture(p, b)
    expected = naive(p, b)
    assert_close(found, expected, FINE * (1 + spread), "mixture")
    gradients = torch.autograd.grad(found, (p, b), upstream)
    agree(gradients, torch.autograd.grad(expected, (p, b), upstream))


def test_a_component_with_zero_weight_has_finite_gradients():
    p = torch.tensor([[1.0, 0.0]], requires_grad=True)
    b = torch.tensor([[-1e4], [0.0]], requires_grad=True)
    log_mixture(p, b).sum().backward()
    assert p.grad.isfinite().all()
    assert b.grad.isfinite().all()


@quick
@given(st.integers(1, 5), st.floats(0, 2000), st.integers(0, 99))
def test_the_exact_mixture_has_no_floor(size, spread, seed):
    """In float32, where the product underflows below e^-87."""
    generator = torch.Generator().manual_seed(seed)
    weights = spread * torch.randn(2, 3, size, generator=generator)
    values = spread * torch.randn(size, 4, generator=generator)
    log_p = torch.log_softmax(weights, dim=-1).requires_grad_()
    b = torch.log_softmax(values, dim=-1)
    expected = torch.logsumexp(log_p[..., None] + b, dim=-2)
    found = exact_log_mixture(log_p, b)
    assert_close(found, expected, 1e-5 * (1 + spread), "mixture")
    (gradient,) = torch.autograd.grad(found.sum(), log_p)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), log_p)
    assert_close(gradient, expected_gradient, 1e-4, "gradient")


def draw(*shape, seed=0):
    """Return random logarithms."""
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(shape, generator=generator, dtype=torch.float64)


def draw_with_zeros(*shape, seed):
    """Return random logarithms, three of ten of zero."""
    generator = torch.Generator().manual_seed(seed)
    zero = torch.rand(shape, generator=generator) < 0.3
    return draw(*shape, seed=seed).masked_fill(zero, -torch.inf)


def test_values_and_gradients_are_those_of_probabilities():
    """A logsumexp of −∞ would have NaN gradients."""
    left = draw_with_zeros(2, 5, 4, seed=1).requires_grad_()
    right = draw_with_zeros(2, 5, 4, seed=2).requires_grad_()
    rules = draw(3, 4, 4, seed=3).requires_grad_()
    inputs = (left, right, rules)
    found = log_bilinear(left, right, rules)
    total = torch.einsum("nkb,nkc,abc->na", left.exp(), right.exp(), rules.exp())
    expected = total.log()
    torch.testing.assert_close(found, expected, rtol=FINE, atol=FINE)
    gradients = torch.autograd.grad(found.sum(), inputs)
    expected_gradients = torch.autograd.grad(expected.sum(), inputs)
    torch.testing.assert_close(gradients, expected_gradients, rtol=FINE, atol=FINE)


def test_splits_that_differ_by_hundreds_of_nats_add_exactly():
    """The longer part of a split is improbable, so each split needs its own scale."""
    nats = torch.arange(12.0)[:, None] * 40
    left = draw(12, 2).float() - nats
    right = draw(12, 2, seed=1).float() + nats - 440
    rules = draw(1, 2, 2, seed=2).float()
    # The sum in double precision is the reference.
    pairs = left.double()[:, :, None] + right.double()[:, None]
    expected = (pairs + rules.double()).logsumexp((0, 1, 2))
    actual = log_bilinear(left, right, rules).double()
    torch.testing.assert_close(actual, expected[None], rtol=1e-5, atol=0)


def test_an_empty_sum_is_minus_infinity_with_zero_gradient():
    left = torch.full((1, 2), -torch.inf)
    right = torch.zeros(1, 2, requires_grad=True)
    rules = torch.zeros(1, 2, 2, requires_grad=True)
    out = log_bilinear(left, right, rules)
    assert out.item() == -torch.inf
    torch.where(out.isfinite(), out, 0.0).sum().backward()
    assert not right.grad.any()
    assert not rules.grad.any()


def test_the_logarithm_of_zero_is_minus_infinity():
    assert safe_log(torch.zeros(2)).tolist() == [-torch.inf, -torch.inf]


NAIVE = 1 << 60
TILED = 0
"""Values of `naive_limit` that force one formula."""


@pytest.mark.parametrize(("scale", "expected"), [(1e3, 1e3 + log(2)), (-1e3, 1e3)])
def test_logits_whose_exponential_overflows(scale, expected):
    y = torch.full((1, 1), scale)
    table = torch.tensor([[1.0], [-1.0], [1.0]])
    found = log_normalisers(y, table, naive_limit=TILED)
    assert found.item() == pytest.approx(expected)


def largest_tensor(limit: int) -> int:
    """Return the size of the largest tensor of a normaliser of 40 vectors and 50 words."""
    y = torch.randn(40, 2, requires_grad=True)
    table = torch.randn(50, 2, requires_grad=True)
    with LargestTensorMode() as mode:
        log_normalisers(y, table, naive_limit=limit).sum().backward()
    return mode.max_numel


def test_no_tensor_has_an_element_per_vector_and_word():
    assert largest_tensor(TILED) <= 50 * 2
    assert largest_tensor(NAIVE) >= 40 * 50
