"""A product of aggregate Markov models: exact, bounded, and how far apart (DLM19)."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import LanguageModel
from tests.laws.support import assert_close, log_prob
from tests.models.limits import VOCAB, copied, put, row, same_model
from tests.tiny import CLOSE, FINE, SAME, every_sequence, quick

CLASSES = ("embedding.weight", "gate.weight", "gate.bias", "words.means")
NAME = "factorial_aggregate_markov"


@quick
@given(st.integers(1, 4), st.floats(0.0, 4.0), st.integers(0, 99))
def test_the_bound_is_never_above_the_score(groups: int, spread: float, seed: int) -> None:
    model = row(NAME, groups=groups)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=spread)
    tokens, lengths = every_sequence(model.task)
    assert (model.bound(tokens) <= log_prob(model, tokens, lengths)[:, 1:] + CLOSE).all()


def test_one_group_is_the_aggregate_markov_model_and_its_own_bound() -> None:
    one, plain = row(NAME, groups=1, states=3), row("aggregate_markov")
    copied(one, plain, *CLASSES)
    same_model(one, plain)
    tokens, lengths = every_sequence(one.task)
    assert_close(one.bound(tokens).detach(), log_prob(one, tokens, lengths)[:, 1:], CLOSE, "bound")


def test_even_factors_lose_all_but_one_vocabulary() -> None:
    """At p_g = 1/V the gap is (G - 1) log V."""
    for groups in (1, 2, 3):
        model = row(NAME, groups=groups)
        put(model, {"words.means": 0.0})
        tokens, lengths = every_sequence(model.task)
        gap = log_prob(model, tokens, lengths)[:, 1:] - model.bound(tokens).detach()
        assert_close(gap, torch.full_like(gap, (groups - 1) * log(VOCAB)), CLOSE, "gap")


def test_the_product_is_the_normalised_product_of_its_groups() -> None:
    model = row(NAME, groups=2, states=3)
    tokens, lengths = every_sequence(model.task)
    factors = []
    for g in range(2):
        part = row("aggregate_markov")
        copied(part, model, "embedding.weight")
        own = slice(3 * g, 3 * g + 3)
        put(part, {"gate.weight": model.gate.weight[own], "gate.bias": model.gate.bias[own]})
        put(part, {"words.means": model.words.means[own]})
        factors.append(part.next_log_prob(torch.arange(VOCAB)[:, None]).exp().detach())
    product = factors[0] * factors[1]
    expected = product / product.sum(1, keepdim=True)
    found = log_prob(model, tokens, lengths)[:, 1:].exp()
    assert_close(found, expected[tokens[:, :-1], tokens[:, 1:]], CLOSE, "P(v | s)")


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_joint_states_and_words_give_one_normaliser(groups: int) -> None:
    """Of few contexts words are summed, of many joint states: the same number and slopes."""
    model = row(NAME, groups=groups, states=3).double()
    torch.manual_seed(0)
    with torch.no_grad():
        model.words.means.normal_(std=3.0)
    x = model.embedding.weight.detach()[torch.arange(3**groups) % VOCAB]
    slopes = []
    for found in (
        model.log_normaliser(x),
        torch.cat([model.log_normaliser(x[:1]), model.log_normaliser(x[1:])]),
        torch.logsumexp(model._product(x), dim=-1),
    ):
        slopes.append((found.detach(), *gradients(model, found)))
    for parts in slopes[1:]:
        for one, other in zip(slopes[0], parts, strict=True):
            assert_close(one, other, FINE, "normaliser or slope")


def gradients(model: LanguageModel, found: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of a sum that weighs every context otherwise."""
    weighted = found * torch.arange(1, len(found) + 1)
    return torch.autograd.grad(weighted.sum(), [model.words.means, model.gate.weight])


def test_only_training_may_use_the_bound() -> None:
    exact, bound = row(NAME), row(NAME, objective="bound")
    tokens, lengths = every_sequence(exact.task)
    for training in (False, True):
        assert_close(
            log_prob(bound, tokens, lengths, training=training)[:, 1:],
            bound.bound(tokens).detach() if training else log_prob(exact, tokens, lengths)[:, 1:],
            SAME,
            f"{training=}",
        )


def test_each_group_has_its_share_of_the_posterior() -> None:
    model = row(NAME, groups=2, states=3)
    tokens, lengths = every_sequence(model.task)
    by_group = model.posterior(tokens, lengths).unflatten(1, (2, 3)).sum(2)
    assert_close(by_group.detach(), torch.full_like(by_group, 1 / 2), CLOSE, "mass of a group")
