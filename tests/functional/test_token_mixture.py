"""The compiled mixture equals the naive formula, also where probabilities underflow."""

from functools import partial
from math import inf, nan

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from lmzoo.functional.token_mixture import mixture_log_prob, naive_mixture_log_prob
from tests.laws.support import assert_close
from tests.tiny import FINE


def with_logits(formula, a: Tensor, s: Tensor, words: Tensor) -> Tensor:
    """Call the formula with gate logits a: y = a, W = 1, b = 0."""
    components = a.shape[-1]
    return formula(a, torch.eye(components).to(a), a.new_zeros(components), s, words)


compiled = partial(with_logits, mixture_log_prob)
naive = partial(with_logits, naive_mixture_log_prob)


def problem(
    positions: int, components: int, vocab: int, seed: int = 0, spread: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gate logits, scores and tokens, in float64."""
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    a = spread * draw(positions, components)
    s = torch.log_softmax(spread * draw(vocab, components), dim=0)
    return a, s, torch.randint(vocab, (positions,), generator=generator)


def results(formula, a: Tensor, s: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-probabilities, and the gradients of a weighted sum of them."""
    a, s = a.clone().requires_grad_(), s.clone().requires_grad_()
    out = formula(a, s, words)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype)
    return (out.detach(), *torch.autograd.grad((out.flatten() * weights).sum(), (a, s)))


def agree(a: Tensor, s: Tensor, words: Tensor, tolerance: float = FINE) -> None:
    found, expected = results(compiled, a, s, words), results(naive, a, s, words)
    for actual, reference, name in zip(found, expected, ("log p", "of a", "of s"), strict=True):
        assert_close(actual, reference, tolerance, name)


@pytest.mark.parametrize("spread", [30.0, 300.0, 3000.0])
def test_probabilities_that_underflow(spread: float) -> None:
    """Gates and scores differ by hundreds of nats, so many of their products underflow."""
    a, s, words = problem(30, 5, 6, spread=spread)
    agree(a, s, words, 1e-9 * spread)
    exact = results(naive, a, s, words)
    found = results(compiled, a.float(), s.float(), words)
    smallest = exact[0].exp().min()
    assert smallest < 1e-40, "no probability is small enough to test anything"
    assert ((found[0] - exact[0]).abs() <= 1e-6 * exact[0].abs() + 1e-3).all()
    assert_close(
        results(naive, a.float(), s.float(), words)[1], found[1], 1e-4 * spread**0.5, "of a"
    )


def test_the_only_component_of_a_token_has_a_tiny_weight() -> None:
    a = torch.tensor([[0.0, -150.0]])
    s = torch.tensor([[-400.0, -1.0], [0.0, -0.5]])
    words = torch.tensor([0])
    found = results(compiled, a, s, words)
    assert found[0].item() == pytest.approx(-151.0)
    assert_close(found[2], results(naive, a, s, words)[2], 1e-6, "of s")
    assert found[2][0].tolist() == pytest.approx([0.0, -1.0])  # the weight is -1


def test_tokens_with_zero_probability_in_some_or_all_components() -> None:
    a, s, _ = problem(1, 3, 4)
    s[0, :2], s[1] = -inf, -inf
    words, a = torch.tensor([0, 1, 2]), a.expand(3, -1)
    assert_close(compiled(a, s, words)[::2], naive(a, s, words)[::2], FINE, "scores")
    assert compiled(a, s, words)[1] == -inf


def test_nan_affects_only_its_own_positions() -> None:
    a, s, words = problem(6, 3, 4)
    a[2, 1] = nan
    expected = naive(a, s, words).isnan()
    assert expected.sum() == 1
    assert torch.equal(compiled(a, s, words).isnan(), expected)
    s[int(words[4]), 0] = nan
    assert torch.equal(compiled(a, s, words).isnan(), naive(a, s, words).isnan())


def test_tokens_can_be_mapped_along_any_axis() -> None:
    problems = [problem(5, 3, 4, seed) for seed in range(2)]
    a, s, words = (torch.stack(tensors, dim=-1) for tensors in zip(*problems, strict=True))
    found = vmap(compiled, -1)(a, s, words)
    for actual, member in zip(found, problems, strict=True):
        assert_close(actual, naive(*member), FINE, "log p")
    gradients = vmap(grad(lambda s, a, words: compiled(a, s, words).sum()), -1)(s, a, words)
    for actual, member in zip(gradients, problems, strict=True):
        assert_close(actual, score_gradient(*member), FINE, "of s")


def score_gradient(a: Tensor, s: Tensor, words: Tensor) -> Tensor:
    """Return the gradient of the summed log-probabilities with respect to the scores."""
    s = s.clone().requires_grad_()
    return torch.autograd.grad(naive(a, s, words).sum(), s)[0]


def test_any_number_of_axes_in_any_memory_order() -> None:
    a, s, words = problem(24, 3, 5)
    a, words = a.view(4, 6, 3).transpose(0, 1), words.view(4, 6).T
    agree(a, s.T.contiguous().T, words)
    agree(a[1, 2], s, words[1, 2])
    agree(a[:0], s, words[:0])


@pytest.mark.parametrize("formula", [compiled, naive])
@pytest.mark.parametrize("bad", [-1, 5])
def test_a_token_outside_the_vocabulary_raises(formula, bad: int) -> None:
    a, s, words = problem(6, 3, 5)
    words[4] = bad
    with pytest.raises(IndexError):
        formula(a, s, words)


def test_a_second_derivative_raises() -> None:
    a, s, words = problem(3, 2, 4)
    a.requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(a, s, words).sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="naive"):
        gradient.sum().backward()


def test_other_dtypes_use_the_naive_formula() -> None:
    a, s, words = problem(3, 2, 4)
    half = a.bfloat16(), s.bfloat16()
    assert torch.equal(compiled(*half, words), naive(*half, words))
