"""Models with one or two latent parents: priors, posteriors and sums (DLM2, 5, 6, 13, 14, 25)."""

import pytest
import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.laws.support import assert_close, log_prob
from tests.largest_tensor import LargestTensorMode
from tests.models.equivalence import (
    ALWAYS,
    LENGTH,
    NEVER,
    assert_same_model,
    copy_weights,
    set_weights,
    small,
)
from tests.tiny import CLOSE, batch, tiny

ALIGNED = ["latent_parent_positional", "latent_parent_typed", "aligned_aggregate_markov"]
PREVIOUS = NEVER * (1 - torch.eye(LENGTH).roll(1, 1))
"""Alignment logits Λ with all mass on a = t-1."""


def test_uniform_prior_covers_the_existing_tokens_of_the_window() -> None:
    prior = small("latent_parent_uniform", window=3).prior()
    expected = torch.tensor(
        [[1, 1 / 2, 1 / 3, 0], [0, 1 / 2, 1 / 3, 1 / 3], [0, 0, 1 / 3, 1 / 3], [0, 0, 0, 1 / 3]]
    )
    assert prior is not None
    assert_close(prior.exp(), expected, CLOSE, "P(a | t)")


@pytest.mark.parametrize("name", [*ALIGNED, "latent_parent_uniform", "two_parent_aggregate_markov"])
def test_prior_sums_to_one_over_earlier_tokens_only(name: str) -> None:
    prior = small(name).prior()
    assert prior is not None
    by_parent = prior.exp().unflatten(0, (LENGTH - 1, -1)).sum(1)
    assert_close(by_parent.sum(0), torch.ones(LENGTH - 1), CLOSE, "P(a | t)")
    assert not by_parent.tril(-1).any()
    assert by_parent.diagonal().all()  # the previous token is always a candidate


@pytest.mark.parametrize("types", [1, 3])
@pytest.mark.parametrize("arcs", ["shared", "positional"])
def test_equal_arc_types_are_the_untyped_model(types: int, arcs: str) -> None:
    typed = small("latent_parent_typed", types=types, arcs=arcs)
    plain = small("latent_parent_positional")
    copy_weights(typed, plain, "embedding.weight", "alignment.logits")
    weight, bias = plain.transition.weight, plain.transition.bias
    set_weights(typed, {"transition.weight": weight.repeat(types, 1)})
    set_weights(typed, {"transition.bias": bias.repeat(types)})
    assert_same_model(typed, plain)


def test_latent_index_of_typed_arcs_is_parent_times_types_plus_type() -> None:
    """With all mass on type 1 of the previous token, the posterior is at its index."""
    model = small("latent_parent_typed", types=2, arcs="positional")
    set_weights(model, {"alignment.logits": PREVIOUS})
    chosen = torch.full((2, LENGTH, LENGTH), NEVER)
    chosen[1] = ALWAYS
    set_weights(model, {"types": chosen})
    posterior = model.posterior(*batch(model.task))  # B, a R + r, t
    assert posterior.argmax(1)[0].tolist() == [2 * a + 1 for a in range(LENGTH - 1)]


def test_aligned_scores_equal_the_explicit_sum() -> None:
    """Compute Σ_a P(a | t) Σ_z P(z | s_a) P(s_t | z) term by term."""
    model = small("aligned_aggregate_markov")
    tokens, lengths = batch(model.task)
    table = model.embedding.weight
    words = torch.softmax(model.words.means @ table.T, dim=1)
    classes = torch.softmax(model.gate(table), dim=1)
    actual = log_prob(model, tokens, torch.full_like(lengths, LENGTH)).exp()
    for b, t in torch.cartesian_prod(torch.arange(len(tokens)), torch.arange(1, LENGTH)).tolist():
        s = tokens[b].tolist()
        prior = torch.softmax(model.alignment.logits[:t, t], dim=0)
        terms = [prior[a] * classes[s[a], z] * words[z, s[t]] for a in range(t) for z in range(3)]
        assert_close(actual[b, t], torch.stack(terms).sum().detach(), CLOSE, f"P(s_{t})")


SIZES = {"batch": 5, "length": 13, "components": 7}


def terms(model: LanguageModel, s: list[int], t: int) -> Tensor:
    """Return P(i, j, s_t | s_<t) for all i, j < t as a (t, t) matrix."""
    table = model.embedding.weight
    words = torch.softmax(model.words.means @ table.T, dim=1)
    prior = torch.softmax(model.pairs[:t, :t, t].flatten(), dim=0).view(t, t)
    joint = torch.zeros(t, t)
    for i in range(t):
        for j in range(t):
            logits = model.first(table[s[i]]) + model.second(table[s[j]])
            classes = torch.softmax(logits, dim=0)
            joint[i, j] = prior[i, j] * sum(classes[z] * words[z, s[t]] for z in range(3))
    return joint.detach()


def test_scores_and_posterior_equal_explicit_sums() -> None:
    model = small("two_parent_aggregate_markov")
    tokens, lengths = batch(model.task)
    lengths = torch.full_like(lengths, LENGTH)
    scores, posterior = log_prob(model, tokens, lengths), model.posterior(tokens, lengths)
    for b, s in enumerate(tokens.tolist()):
        for t in range(1, LENGTH):
            joint = terms(model, s, t)
            assert_close(scores[b, t].exp(), joint.sum(), CLOSE, f"P(s_{t})")
            expected = joint.sum(0) / joint.sum()
            assert_close(posterior[b, :t, t - 1].detach(), expected, CLOSE, f"P(j | s_{t})")
            assert not posterior[b, t:, t - 1].any()


def test_largest_tensor_has_at_most_b_t2_k_elements() -> None:
    count, length, components = SIZES.values()
    model = tiny("two_parent_aggregate_markov", length=length, components=components)
    tokens, lengths = batch(model.task, count=count)
    with LargestTensorMode() as largest:
        model.log_prob(tokens, lengths).sum().backward()
    assert largest.max_numel <= count * (length - 1) ** 2 * components
