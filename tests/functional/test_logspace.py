"""Mixtures, sums over splits and normalisers, against sums of exponentials."""

from functools import partial
from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.functional.inside import log_bilinear
from lmzoo.functional.logspace import exact_log_mixture, log_mixture, safe_log
from lmzoo.functional.tied_softmax import log_normalisers
from lmzoo.laws.tiny import assert_close
from tests.cases import parametrize
from tests.functional.forms import agree, normal
from tests.largest_tensor import LargestTensorMode
from tests.tiny import FINE, quick


def naive(p, b):
    """Compute the mixture with all terms in memory, (..., I, K, J)."""
    log_p = p.log()[..., None]
    terms = log_p + b[..., None, :, :]
    return torch.logsumexp(terms, dim=-2)


SIZES = st.integers(1, 5)
SEEDS = st.integers(0, 99)


@quick
@given(SIZES, st.floats(0, 200), SEEDS)
def test_values_and_gradients_equal_the_naive_formula(size, spread, seed):
    shapes = [(2, 3, size), (2, size, 4), (2, 3, 4)]
    weights, values, upstream = normal(seed, *shapes)
    p = torch.softmax(weights, dim=-1).requires_grad_()
    b = (spread * values).requires_grad_()
    inputs = (p, b)
    found = log_mixture(p, b)
    expected = naive(p, b)
    assert_close(found, expected, FINE * (1 + spread), "mixture")
    gradients = torch.autograd.grad(found, inputs, upstream)
    expected_gradients = torch.autograd.grad(expected, inputs, upstream)
    agree(gradients, expected_gradients)


def test_a_component_with_zero_weight_has_finite_gradients():
    p = torch.tensor([[1.0, 0.0]], requires_grad=True)
    b = torch.tensor([[-1e4], [0.0]], requires_grad=True)
    total = log_mixture(p, b).sum()
    total.backward()
    assert p.grad.isfinite().all()
    assert b.grad.isfinite().all()


@quick
@given(SIZES, st.floats(0, 2000), SEEDS)
def test_the_exact_mixture_has_no_floor(size, spread, seed):
    """In float32, where the product underflows below e^-87."""
    shapes = [(2, 3, size), (size, 4)]
    weights, values = normal(seed, *shapes, dtype=torch.float32)
    log_p = torch.log_softmax(spread * weights, dim=-1)
    log_p.requires_grad_()
    b = torch.log_softmax(spread * values, dim=-1)
    joint = log_p[..., None] + b
    expected = torch.logsumexp(joint, dim=-2)
    found = exact_log_mixture(log_p, b)
    assert_close(found, expected, 1e-5 * (1 + spread), "mixture")
    (gradient,) = torch.autograd.grad(found.sum(), log_p)
    (slope,) = torch.autograd.grad(expected.sum(), log_p)
    assert_close(gradient, slope, 1e-4, "gradient")


def draw(*shape, seed=0):
    """Return random logarithms."""
    (drawn,) = normal(seed, shape)
    return 3 * drawn


def draw_with_zeros(*shape, seed):
    """Return random logarithms, three of ten of zero."""
    generator = torch.Generator().manual_seed(seed)
    zero = torch.rand(shape, generator=generator) < 0.3
    drawn = draw(*shape, seed=seed)
    return drawn.masked_fill(zero, -torch.inf)


def test_values_and_gradients_are_those_of_probabilities():
    """A logsumexp of −∞ would have NaN gradients."""
    left = draw_with_zeros(2, 5, 4, seed=1)
    right = draw_with_zeros(2, 5, 4, seed=2)
    rules = draw(3, 4, 4, seed=3)
    inputs = (left, right, rules)
    for part in inputs:
        part.requires_grad_()
    found = log_bilinear(left, right, rules)
    probabilities = [part.exp() for part in inputs]
    expected = torch.einsum("nkb,nkc,abc->na", *probabilities).log()
    close = partial(torch.testing.assert_close, rtol=FINE, atol=FINE)
    close(found, expected)
    gradients = torch.autograd.grad(found.sum(), inputs)
    expected_gradients = torch.autograd.grad(expected.sum(), inputs)
    close(gradients, expected_gradients)


def test_splits_that_differ_by_hundreds_of_nats_add_exactly():
    """The longer part of a split is improbable, so each split needs its own scale."""
    nats = 40 * torch.arange(12.0)[:, None]
    left = draw(12, 2).float() - nats
    # A left part that is probable has a right part that is not.
    drawn = draw(12, 2, seed=1).float()
    right = drawn + nats - 440
    rules = draw(1, 2, 2, seed=2).float()
    # The sum in double precision is the reference.
    column = left.double()[:, :, None]
    pairs = column + right.double()[:, None]
    joint = pairs + rules.double()
    expected = joint.logsumexp((0, 1, 2))[None]
    actual = log_bilinear(left, right, rules).double()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=0)


def test_an_empty_sum_is_minus_infinity_with_zero_gradient():
    left = torch.full((1, 2), -torch.inf)
    right = torch.zeros(1, 2, requires_grad=True)
    rules = torch.zeros(1, 2, 2, requires_grad=True)
    out = log_bilinear(left, right, rules)
    assert out.item() == -torch.inf
    finite = torch.where(out.isfinite(), out, 0.0)
    finite.sum().backward()
    assert not right.grad.any()
    assert not rules.grad.any()


def test_the_logarithm_of_zero_is_minus_infinity():
    logarithms = safe_log(torch.zeros(2))
    assert logarithms.tolist() == [-torch.inf] * 2


NAIVE = 1 << 60
TILED = 0
"""Values of `naive_limit` that force one formula."""
LARGE = [(1e3, 1e3 + log(2)), (-1e3, 1e3)]


@parametrize(("scale", "expected"), LARGE)
def test_logits_whose_exponential_overflows(scale, expected):
    y = torch.full((1, 1), scale)
    # Two words share the largest logit, or one has it.
    signs = [[1.0], [-1.0], [1.0]]
    table = torch.tensor(signs)
    found = log_normalisers(y, table, naive_limit=TILED)
    assert found.item() == pytest.approx(expected)


def largest_tensor(limit):
    """Return the size of the largest tensor of a normaliser of 40 vectors and 50 words."""
    y = torch.randn(40, 2, requires_grad=True)
    table = torch.randn(50, 2, requires_grad=True)
    with LargestTensorMode() as mode:
        total = log_normalisers(y, table, naive_limit=limit).sum()
        total.backward()
    return mode.max_numel


def test_no_tensor_has_an_element_per_vector_and_word():
    assert largest_tensor(TILED) <= 50 * 2
    assert largest_tensor(NAIVE) >= 40 * 50
