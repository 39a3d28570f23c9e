"""Semirings against enumeration: every path, every tree, in every algebra."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.functional.chain import chain
from lmzoo.functional.inside import from_first, inside
from lmzoo.functional.semiring import LOG, MAX, SUM, Semiring, safe_log
from tests.tiny import FINE, quick

SEMIRINGS = pytest.mark.parametrize("semiring", [SUM, LOG, MAX], ids=["sum", "log", "max"])


def draw(*shape, seed=0, zeros=False, semiring: Semiring = LOG):
    """Random elements of the semiring, some of them its zero."""
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    x = x.exp() if semiring is SUM else x
    hidden = torch.rand(shape, generator=generator) < 0.3 * zeros
    return x.masked_fill(hidden, semiring.zero)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=FINE, atol=FINE)


@SEMIRINGS
@given(st.integers(0, 1000))
@quick
def test_the_laws_of_a_semiring(semiring, seed):
    a, b, c = draw(3, 4, seed=seed, zeros=True, semiring=semiring)
    plus = lambda x, y: semiring.plus(torch.stack([x, y]), 0)  # noqa: E731
    close(semiring.times(a, plus(b, c)), plus(semiring.times(a, b), semiring.times(a, c)))
    close(plus(plus(a, b), c), plus(a, plus(b, c)))
    close(semiring.times(a, b), semiring.times(b, a))
    nothing, unit = torch.full_like(a, semiring.zero), torch.full_like(a, semiring.one)
    close(plus(a, nothing), a)
    close(semiring.times(a, unit), a)
    close(semiring.times(a, nothing), nothing)


@SEMIRINGS
def test_a_chain_is_the_sum_over_its_paths(semiring):
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
def test_the_fast_bilinear_product_is_the_one_by_definition(semiring):
    inputs = [draw(2, 5, 4, seed=s, semiring=semiring).requires_grad_() for s in (1, 2)]
    inputs.append(draw(3, 4, 4, seed=3, semiring=semiring).requires_grad_())
    same(semiring.bilinear(*inputs), semiring.bilinear_by_definition(*inputs), inputs)


def test_logs_of_nothing_keep_the_gradients_of_probabilities():
    """Where the definition, a logsumexp of −∞, has NaN."""
    inputs = [draw(2, 5, 4, seed=s, zeros=True).requires_grad_() for s in (1, 2)]
    inputs.append(draw(3, 4, 4, seed=3).requires_grad_())
    plain = SUM.bilinear_by_definition(*[x.exp() for x in inputs]).log()
    same(LOG.bilinear(*inputs), plain, inputs)


def same(a, b, inputs):
    """Equal values, equal gradients."""
    close(a, b)
    gradients = [torch.autograd.grad(y.sum(), inputs) for y in (a, b)]
    for one, other in zip(*gradients, strict=True):
        close(one, other)


def test_splits_hundreds_of_nats_apart_are_added_without_loss():
    """The long side of a split is improbable: neither side may be scaled by its own best."""
    nats = torch.arange(12.0)[:, None] * 40
    left, right = -nats + draw(12, 2).float(), nats - 440 + draw(12, 2, seed=1).float()
    rules = draw(1, 2, 2, seed=2).float()
    exact = LOG.bilinear_by_definition(left.double(), right.double(), rules.double())
    torch.testing.assert_close(LOG.bilinear(left, right, rules).double(), exact, rtol=1e-5, atol=0)


def test_a_sum_of_nothing_is_minus_infinity_and_has_no_gradient():
    left = torch.full((1, 2), -torch.inf, requires_grad=True)
    right, rules = torch.zeros(1, 2, requires_grad=True), torch.zeros(1, 2, 2, requires_grad=True)
    out = LOG.bilinear(left, right, rules)
    assert out.item() == -torch.inf
    gradients = torch.autograd.grad(torch.where(out.isfinite(), out, 0.0).sum(), (right, rules))
    assert all((g == 0).all() for g in gradients)
    assert safe_log(torch.zeros(2)).tolist() == [-torch.inf] * 2


def test_all_ones_count_the_trees():
    """One nonterminal over one class: Catalan(n-1) trees of n words."""
    leaves, rules = torch.ones(1, 7, 1), torch.zeros(1, 2, 2)
    chart = from_first(inside(leaves, rules + 1, SUM))[0]
    # Every node of either kind, so a child that is a leaf must be a class and no other.
    assert chart[:, 0].tolist() == [0, 1, 2, 5, 14, 42, 132]


def test_the_best_trees_score_is_below_all_trees_and_its_gradient_is_one_tree():
    leaves, rules = draw(1, 6, 2), draw(2, 4, 4, seed=1).requires_grad_()
    best, total = (from_first(inside(leaves, rules, s))[0, -1, 0] for s in (MAX, LOG))
    assert best < total
    (used,) = torch.autograd.grad(best, rules)
    assert used.sum() == 5, "a binary tree of six words has five rules"
    (expected,) = torch.autograd.grad(total, rules)
    assert expected.sum().item() == pytest.approx(5)
