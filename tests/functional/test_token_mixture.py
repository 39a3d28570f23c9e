"""The compiled mixture where probabilities underflow or are zero, and in other dtypes."""

from functools import partial
from math import inf

import pytest
import torch
from torch import Tensor

from lmzoo.functional.token_mixture import mixture_log_prob, naive_mixture_log_prob
from lmzoo.laws.tiny import assert_close
from tests.functional.forms import agree, results
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


@pytest.mark.parametrize("spread", [30.0, 300.0, 3000.0])
def test_probabilities_that_underflow(spread):
    """Gates and scores differ by hundreds of nats, so many of their products underflow."""
    a, s, words = problem(30, 5, 6, spread=spread)
    exact = results(naive, [a, s, words])
    assert exact[0].exp().min() < 1e-40, "no probability is small enough to test anything"
    agree(results(compiled, [a, s, words]), exact)
    single = [a.float(), s.float(), words]
    found = results(compiled, single)
    assert ((found[0] - exact[0]).abs() <= 1e-6 * exact[0].abs() + 1e-3).all()
    assert_close(results(naive, single)[1], found[1], 1e-4 * spread**0.5, "gradient of a")


def test_the_only_component_of_a_token_has_a_tiny_weight():
    a = torch.tensor([[0.0, -150.0]])
    s = torch.tensor([[-400.0, -1.0], [0.0, -0.5]])
    words = torch.tensor([0])
    found = results(compiled, [a, s, words])
    assert found[0].item() == pytest.approx(-151.0)
    agree(found, results(naive, [a, s, words]))


def test_tokens_with_zero_probability_in_some_or_all_components():
    a, s, _ = problem(1, 3, 4)
    s[0, :2] = -inf
    s[1] = -inf
    words = torch.tensor([0, 1, 2])
    a = a.expand(3, -1)
    assert_close(compiled(a, s, words)[::2], naive(a, s, words)[::2], FINE, "scores")
    assert compiled(a, s, words)[1] == -inf


def test_other_dtypes_use_the_naive_formula():
    a, s, words = problem(3, 2, 4)
    half = a.bfloat16(), s.bfloat16(), words
    assert torch.equal(compiled(*half), naive(*half))
