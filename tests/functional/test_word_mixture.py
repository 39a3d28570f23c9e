"""The compiled mixture is the plain formula, also where probabilities leave the floats."""

from functools import partial
from math import inf, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap

from lmzoo.functional.word_mixture import log_prob_of_words, plain
from tests.laws.ask import same
from tests.tiny import FINE, quick

FINE32 = 2e-5
"""Of gradients summed over up to thirty positions, in float32."""


def at(formula, a: Tensor, s: Tensor, words: Tensor) -> Tensor:
    """The formula where the gate's logits are a: y = a, W = 1, b = 0."""
    components = a.shape[-1]
    return formula(a, torch.eye(components).to(a), a.new_zeros(components), s, words)


by_loops = partial(at, log_prob_of_words)
by_operations = partial(at, plain)


def problem(
    positions: int, components: int, vocab: int, seed: int = 0, spread: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Gates, scores and words, in float64."""
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    a = spread * draw(positions, components)
    s = torch.log_softmax(spread * draw(vocab, components), dim=0)
    return a, s, torch.randint(vocab, (positions,), generator=generator)


def solved(formula, a: Tensor, s: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, and the gradients of a weighted sum of them."""
    a, s = a.clone().requires_grad_(), s.clone().requires_grad_()
    out = formula(a, s, words)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype)
    return (out.detach(), *torch.autograd.grad((out.flatten() * weights).sum(), (a, s)))


def agree(a: Tensor, s: Tensor, words: Tensor, tolerance: float = FINE) -> None:
    found, expected = solved(by_loops, a, s, words), solved(by_operations, a, s, words)
    for one, other, what in zip(found, expected, ("log p", "of a", "of s"), strict=True):
        same(one, other, tolerance, what)


@quick
@given(st.integers(1, 30), st.integers(1, 20), st.integers(1, 9), st.integers(0, 99))
def test_values_and_gradients_are_the_plain_ones(
    positions: int, components: int, vocab: int, seed: int
) -> None:
    a, s, words = problem(positions, components, vocab, seed)
    agree(a, s, words)
    agree(a.float(), s.float(), words, FINE32)


def test_the_gradient_is_that_of_finite_differences() -> None:
    a, s, words = problem(7, 3, 4)
    inputs = a.requires_grad_(), s.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, s: by_loops(a, s, words), inputs)


@pytest.mark.parametrize("spread", [30.0, 300.0, 3000.0])
def test_probabilities_that_no_float_holds(spread: float) -> None:
    """Gates and scores hundreds of nats apart: many products of both are no numbers any more."""
    a, s, words = problem(30, 5, 6, spread=spread)
    agree(a, s, words, 1e-9 * spread)
    exact = solved(by_operations, a, s, words)
    found = solved(by_loops, a.float(), s.float(), words)
    smallest = exact[0].exp().min()
    assert smallest < 1e-40, "not one is too small for float32: the test tests nothing"
    assert ((found[0] - exact[0]).abs() <= 1e-6 * exact[0].abs() + 1e-3).all()
    same(
        solved(by_operations, a.float(), s.float(), words)[1], found[1], 1e-4 * spread**0.5, "of a"
    )


def test_the_component_that_knows_the_word_is_all_but_shut() -> None:
    a = torch.tensor([[0.0, -150.0]])
    s = torch.tensor([[-400.0, -1.0], [0.0, -0.5]])
    words = torch.tensor([0])
    found = solved(by_loops, a, s, words)
    assert found[0].item() == pytest.approx(-151.0)
    same(found[2], solved(by_operations, a, s, words)[2], 1e-6, "of s")
    assert found[2][0].tolist() == pytest.approx([0.0, -1.0])  # the weight is -1


def test_words_that_some_or_all_components_exclude() -> None:
    a, s, _ = problem(1, 3, 4)
    s[0, :2], s[1] = -inf, -inf
    words, a = torch.tensor([0, 1, 2]), a.expand(3, -1)
    same(by_loops(a, s, words)[::2], by_operations(a, s, words)[::2], FINE, "scores")
    assert by_loops(a, s, words)[1] == -inf


def test_what_is_no_number_stays_where_it_is() -> None:
    a, s, words = problem(6, 3, 4)
    a[2, 1] = nan
    expected = by_operations(a, s, words).isnan()
    assert expected.sum() == 1
    assert torch.equal(by_loops(a, s, words).isnan(), expected)
    s[int(words[4]), 0] = nan
    assert torch.equal(by_loops(a, s, words).isnan(), by_operations(a, s, words).isnan())


def test_mapped_axes_are_members() -> None:
    """Maps, maps of maps, of gradients, and of what is not mapped, as one after another."""
    problems = [problem(5, 3, 4, seed) for seed in range(6)]
    a, s = (
        torch.stack(some).unflatten(0, (2, 3)) for some in list(zip(*problems, strict=True))[:2]
    )
    words = problems[0][2]

    def objective(a: Tensor, s: Tensor, words: Tensor) -> Tensor:
        return (by_loops(a, s, words) ** 2).sum()

    mapped = vmap(vmap(by_loops, (0, 0, None)), (0, 0, None))(a, s, words)
    of_a, of_s = vmap(vmap(grad(objective, (0, 1)), (0, 0, None)), (0, 0, None))(a, s, words)
    for i in range(2):
        for j in range(3):
            same(mapped[i, j], by_operations(a[i, j], s[i, j], words), FINE, "log p")
            one, other = a[i, j].clone().requires_grad_(), s[i, j].clone().requires_grad_()
            (by_operations(one, other, words) ** 2).sum().backward()
            same(of_a[i, j], one.grad, FINE, "of a")
            same(of_s[i, j], other.grad, FINE, "of s")
    alone = vmap(by_loops, (0, None, None))(a[0], s[0, 0], words)
    same(alone[1], by_operations(a[0, 1], s[0, 0], words), FINE, "one axis mapped")


def test_members_have_their_own_words_on_any_axis() -> None:
    problems = [problem(5, 3, 4, seed) for seed in range(2)]
    a, s, words = (torch.stack(some, dim=-1) for some in zip(*problems, strict=True))
    found = vmap(by_loops, -1)(a, s, words)
    for one, alone in zip(found, problems, strict=True):
        same(one, by_operations(*alone), FINE, "log p")
    summed = vmap(grad(lambda s, a, words: by_loops(a, s, words).sum()), -1)(s, a, words)
    for one, alone in zip(summed, problems, strict=True):
        same(one, solved_evenly(*alone), FINE, "of s")


def solved_evenly(a: Tensor, s: Tensor, words: Tensor) -> Tensor:
    """The gradient of the sum of the log-probabilities in the scores."""
    s = s.clone().requires_grad_()
    return torch.autograd.grad(by_operations(a, s, words).sum(), s)[0]


def test_positions_may_have_axes_and_any_layout() -> None:
    a, s, words = problem(24, 3, 5)
    a, words = a.view(4, 6, 3).transpose(0, 1), words.view(4, 6).T
    agree(a, s.T.contiguous().T, words)
    agree(a[1, 2], s, words[1, 2])
    agree(a[:0], s, words[:0])


@pytest.mark.parametrize("formula", [by_loops, by_operations])
@pytest.mark.parametrize("bad", [-1, 5])
def test_a_word_without_scores_is_refused(formula, bad: int) -> None:
    a, s, words = problem(6, 3, 5)
    words[4] = bad
    with pytest.raises(IndexError):
        formula(a, s, words)


def test_a_second_derivative_is_refused() -> None:
    a, s, words = problem(3, 2, 4)
    a.requires_grad_()
    (slope,) = torch.autograd.grad(by_loops(a, s, words).sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="plain"):
        slope.sum().backward()


def test_other_numbers_take_the_plain_formula() -> None:
    a, s, words = problem(3, 2, 4)
    half = a.bfloat16(), s.bfloat16()
    assert torch.equal(by_loops(*half, words), by_operations(*half, words))
