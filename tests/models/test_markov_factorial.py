"""Factorial aggregate Markov model: exact score, lower bound and their gap (DLM19)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import LanguageModel
from tests.laws.support import assert_close, log_prob
from tests.models.equivalence import VOCAB, copy_weights, set_weights, small
from tests.tiny import CLOSE, FINE, SAME, every_sequence, quick

NAME = "factorial_aggregate_markov"


@quick
@given(st.integers(1, 4), st.floats(0.0, 4.0), st.integers(0, 99))
def test_bound_is_at_most_the_exact_score(groups: int, spread: float, seed: int) -> None:
    model = small(NAME, groups=groups)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=spread)
    tokens, lengths = every_sequence(model.task)
    assert (model.bound(tokens) <= log_prob(model, tokens, lengths)[:, 1:] + CLOSE).all()


def test_score_is_the_normalised_product_of_the_groups() -> None:
    model = small(NAME, groups=2, states=3)
    tokens, lengths = every_sequence(model.task)
    factors = []
    for g in range(2):
        part = small("aggregate_markov")
        copy_weights(part, model, "embedding.weight")
        own = slice(3 * g, 3 * g + 3)
        set_weights(
            part, {"gate.weight": model.gate.weight[own], "gate.bias": model.gate.bias[own]}
        )
        set_weights(part, {"words.means": model.words.means[own]})
        factors.append(part.next_log_prob(torch.arange(VOCAB)[:, None]).exp().detach())
    product = factors[0] * factors[1]
    expected = product / product.sum(1, keepdim=True)
    actual = log_prob(model, tokens, lengths)[:, 1:].exp()
    assert_close(actual, expected[tokens[:, :-1], tokens[:, 1:]], CLOSE, "P(v | s)")


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_both_ways_to_compute_the_normaliser_agree(groups: int) -> None:
    """Compare the sum over tokens with the sum over joint states: values and gradients."""
    model = small(NAME, groups=groups, states=3).double()
    torch.manual_seed(0)
    with torch.no_grad():
        model.words.means.normal_(std=3.0)
    x = model.embedding.weight.detach()[torch.arange(3**groups) % VOCAB]
    slopes = []
    for actual in (
        model.log_normaliser(x),
        torch.cat([model.log_normaliser(x[:1]), model.log_normaliser(x[1:])]),
        torch.logsumexp(model._product(x), dim=-1),
    ):
        slopes.append((actual.detach(), *gradients(model, actual)))
    for parts in slopes[1:]:
        for expected, part in zip(slopes[0], parts, strict=True):
            assert_close(part, expected, FINE, "normaliser or gradient")


def gradients(model: LanguageModel, actual: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return gradients of a sum in which every context has a different weight."""
    weighted = actual * torch.arange(1, len(actual) + 1)
    return torch.autograd.grad(weighted.sum(), [model.words.means, model.gate.weight])


def test_only_training_uses_the_bound() -> None:
    exact, bound = small(NAME), small(NAME, objective="bound")
    tokens, lengths = every_sequence(exact.task)
    for training in (False, True):
        assert_close(
            log_prob(bound, tokens, lengths, training=training)[:, 1:],
            bound.bound(tokens).detach() if training else log_prob(exact, tokens, lengths)[:, 1:],
            SAME,
            f"{training=}",
        )


def test_posterior_mass_of_each_group_is_one_over_g() -> None:
    model = small(NAME, groups=2, states=3)
    tokens, lengths = every_sequence(model.task)
    by_group = model.posterior(tokens, lengths).unflatten(1, (2, 3)).sum(2)
    assert_close(by_group.detach(), torch.full_like(by_group, 1 / 2), CLOSE, "mass of a group")
