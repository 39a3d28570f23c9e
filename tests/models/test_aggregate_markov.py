"""Aggregate Markov models: factorial, lagged, with prototypes (DLM18-22, 24, 28)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.laws.support import assert_close, log_prob, next_log_prob
from tests.models.equivalence import (
    NEVER,
    VOCAB,
    assert_same_model,
    copy_weights,
    set_weights,
    small,
)
from tests.tiny import CLOSE, FINE, SAME, every_sequence, quick

FACTORIAL = "factorial_aggregate_markov"


@quick
@given(st.integers(1, 4), st.floats(0.0, 4.0), st.integers(0, 99))
def test_bound_is_at_most_the_exact_score(groups: int, spread: float, seed: int) -> None:
    model = small(FACTORIAL, groups=groups)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=spread)
    tokens, lengths = every_sequence(model.task)
    assert (model.bound(tokens) <= log_prob(model, tokens, lengths)[:, 1:] + CLOSE).all()


def test_score_is_the_normalised_product_of_the_groups() -> None:
    model = small(FACTORIAL, groups=2, states=3)
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
    model = small(FACTORIAL, groups=groups, states=3).double()
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
    exact, bound = small(FACTORIAL), small(FACTORIAL, objective="bound")
    tokens, lengths = every_sequence(exact.task)
    for training in (False, True):
        assert_close(
            log_prob(bound, tokens, lengths, training=training)[:, 1:],
            bound.bound(tokens).detach() if training else log_prob(exact, tokens, lengths)[:, 1:],
            SAME,
            f"{training=}",
        )


def test_posterior_mass_of_each_group_is_one_over_g() -> None:
    model = small(FACTORIAL, groups=2, states=3)
    tokens, lengths = every_sequence(model.task)
    by_group = model.posterior(tokens, lengths).unflatten(1, (2, 3)).sum(2)
    assert_close(by_group.detach(), torch.full_like(by_group, 1 / 2), CLOSE, "mass of a group")


LAGGED = "lagged_aggregate_markov"


@pytest.mark.parametrize("pad", ["ones", "unit"])
def test_scores_follow_the_equation(pad: str) -> None:
    model = small(LAGGED, window=3, pad=pad)
    tokens, _ = every_sequence(model.task)
    table = model.embedding.weight
    before = torch.full((len(tokens), 1, 4), 1.0 if pad == "ones" else 0.5)
    for t in range(1, 5):
        context = [table[tokens[:, t - j]] if t >= j else before[:, 0] for j in (1, 2, 3)]
        terms = (
            lag(c) / 2 ** (j + 1)
            for j, (lag, c) in enumerate(zip(model.lags, context, strict=True))
        )
        weights = torch.softmax(sum(terms), dim=1)
        expected = weights @ torch.softmax(model.words.means @ table.T, dim=1)
        assert_close(
            next_log_prob(model, tokens[:, :t]).exp(), expected.detach(), CLOSE, f"after {t}"
        )


def test_free_table_can_equal_the_tied_table() -> None:
    free, tied = small(f"{LAGGED}_free"), small(LAGGED)
    copy_weights(free, tied, *(name for name, _ in tied.named_parameters() if "words" not in name))
    set_weights(free, {"words.logits": tied.words.means @ tied.embedding.weight.T})
    assert_same_model(free, tied)


def test_pad_vector_is_not_normalised() -> None:
    """The pad vector has length 1; normalised token vectors have length √E."""
    model = small(f"{LAGGED}_sphere", window=2)
    prefix = every_sequence(model.task)[0][:1, :1]
    x = normalise_vectors(model.embedding(prefix[:, 0]), Norm.RMS)
    logits = model.lags[0](x) / 2 + model.lags[1](torch.full((1, 4), 0.5)) / 4
    actual = model.log_weights(prefix)[:, 0]
    assert_close(actual.detach(), torch.log_softmax(logits, dim=1).detach(), CLOSE, "after <start>")


def test_free_table_with_scales_is_refused() -> None:
    with pytest.raises(UserError, match="scaled=True with words=free"):
        zoo.config(f"{LAGGED}_free", scaled=True)


@pytest.mark.parametrize("norm", list(Norm))
def test_mapped_vector_is_not_normalised(norm: Norm) -> None:
    """N is applied to the previous token and to the prototypes only."""
    model = small("prototype_rotation_mixture_sphere", norm=norm)
    prefix = every_sequence(model.task)[0][:, :3]
    table = model.embedding.weight
    x = normalise_vectors(table[prefix[:, -1]], norm)
    k = normalise_vectors(model.prototypes.means, norm)
    w = torch.softmax(model.gate(x), dim=1)
    expected = w[:, :1] * torch.softmax(model.map(x) @ table.T, dim=1)
    expected = expected + w[:, 1:] @ torch.softmax(k @ table.T, dim=1)
    assert_close(next_log_prob(model, prefix).exp(), expected.detach(), CLOSE, "P(v | s)")


def test_latent_value_zero_is_the_map() -> None:
    model = small("prototype_rotation_mixture")
    set_weights(model, {"gate.bias": torch.tensor([-NEVER, 0, 0, 0])})
    posterior = model.posterior(*every_sequence(model.task))
    assert posterior.shape[1] == 4
    assert (posterior[:, 0] > 0.99).all()
