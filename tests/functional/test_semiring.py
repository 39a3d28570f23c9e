"""Semirings, chains and trees against enumeration."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.functional.inside import initial_spans, inside
from lmzoo.functional.logspace import safe_log
from lmzoo.functional.semiring import LOG, MAX, SUM, Semiring, chain
from tests.tiny import FINE, quick

SEMIRINGS = pytest.mark.parametrize("semiring", [SUM, LOG, MAX], ids=["sum", "log", "max"])


def draw(*shape, seed=0, zeros=False, semiring: Semiring = LOG):
    """Return random elements of the semiring, some of them zero if `zeros`."""
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    x = x.exp() if semiring is SUM else x
    is_zero = torch.rand(shape, generator=generator) < 0.3 * zeros
    return x.masked_fill(is_zero, semiring.zero)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=FINE, atol=FINE)


@SEMIRINGS
@given(st.integers(0, 1000))
@quick
def test_semiring_laws(semiring, seed):
    a, b, c = draw(3, 4, seed=seed, zeros=True, semiring=semiring)
    plus = lambda x, y: semiring.plus(torch.stack([x, y]), 0)  # noqa: E731
    close(semiring.times(a, plus(b, c)), plus(semiring.times(a, b), semiring.times(a, c)))
    close(plus(plus(a, b), c), plus(a, plus(b, c)))
    close(semiring.times(a, b), semiring.times(b, a))
    zero, one = torch.full_like(a, semiring.zero), torch.full_like(a, semiring.one)
    close(plus(a, zero), a)
    close(semiring.times(a, one), a)
    close(semiring.times(a, zero), zero)


@SEMIRINGS
def test_a_chain_sums_over_all_paths(semiring):
    k, links = 3, 3
    start = draw(2, k, semiring=semiring)
    steps = [draw(2, k, k, seed=n + 1, semiring=semiring) for n in range(links)]
    for n, alpha in enumerate(chain(start, steps, semiring)):
        for j in range(k):
            paths = []
            for path in product(range(k), repeat=n):
                path, total = (*path, j), start[:, (*path, j)[0]]
                for m in range(n):
                    total = semiring.times(total, steps[m][:, path[m], path[m + 1]])
                paths.append(total)
            close(alpha[:, j], semiring.plus(torch.stack(paths), 0))


@SEMIRINGS
def test_the_fast_bilinear_product_equals_the_naive_one(semiring):
    inputs = [draw(2, 5, 4, seed=s, semiring=semiring).requires_grad_() for s in (1, 2)]
    inputs.append(draw(3, 4, 4, seed=3, semiring=semiring).requires_grad_())
    assert_same(semiring.bilinear(*inputs), semiring.naive_bilinear(*inputs), inputs)


def test_log_of_zero_has_the_gradients_of_probabilities():
    """The naive product, a logsumexp of −∞, has NaN gradients there."""
    inputs = [draw(2, 5, 4, seed=s, zeros=True).requires_grad_() for s in (1, 2)]
    inputs.append(draw(3, 4, 4, seed=3).requires_grad_())
    expected = SUM.naive_bilinear(*[x.exp() for x in inputs]).log()
    assert_same(LOG.bilinear(*inputs), expected, inputs)


def assert_same(a, b, inputs):
    """Assert equal values and equal gradients."""
    close(a, b)
    gradients = [torch.autograd.grad(y.sum(), inputs) for y in (a, b)]
    for pair in zip(*gradients, strict=True):
        close(*pair)


def test_splits_that_differ_by_hundreds_of_nats_add_exactly():
    """The longer part of a split is improbable, so each split needs its own scale."""
    nats = torch.arange(12.0)[:, None] * 40
    left, right = -nats + draw(12, 2).float(), nats - 440 + draw(12, 2, seed=1).float()
    rules = draw(1, 2, 2, seed=2).float()
    exact = LOG.naive_bilinear(left.double(), right.double(), rules.double())
    torch.testing.assert_close(LOG.bilinear(left, right, rules).double(), exact, rtol=1e-5, atol=0)


def test_an_empty_sum_is_minus_infinity_with_zero_gradient():
    left = torch.full((1, 2), -torch.inf, requires_grad=True)
    right, rules = torch.zeros(1, 2, requires_grad=True), torch.zeros(1, 2, 2, requires_grad=True)
    out = LOG.bilinear(left, right, rules)
    assert out.item() == -torch.inf
    gradients = torch.autograd.grad(torch.where(out.isfinite(), out, 0.0).sum(), (right, rules))
    assert all((g == 0).all() for g in gradients)
    assert safe_log(torch.zeros(2)).tolist() == [-torch.inf] * 2


def test_counts_of_trees_are_catalan_numbers():
    """One nonterminal over one class gives Catalan(n-1) trees of n words."""
    leaves, rules = torch.ones(1, 7, 1), torch.zeros(1, 2, 2)
    chart = initial_spans(inside(leaves, rules + 1, SUM))[0]
    # Both symbols of a rule may be either kind, but a leaf can only be the class.
    assert chart[:, 0].tolist() == [0, 1, 2, 5, 14, 42, 132]


def test_the_gradient_of_the_best_score_is_one_tree():
    leaves, rules = draw(1, 6, 2), draw(2, 4, 4, seed=1).requires_grad_()
    best, total = (initial_spans(inside(leaves, rules, s))[0, -1, 0] for s in (MAX, LOG))
    assert best < total
    (used,) = torch.autograd.grad(best, rules)
    assert used.sum() == 5, "a binary tree of six words has five rules"
    (expected,) = torch.autograd.grad(total, rules)
    assert expected.sum().item() == pytest.approx(5)
