"""Latent Markov models of one or two tokens: limits and enumeration (DLM10, 15, 16, 17, 27)."""

from itertools import product

import pytest
import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.equivalence import (
    ALWAYS,
    LENGTH,
    NEVER,
    VOCAB,
    assert_same_model,
    copy_weights,
    set_weights,
    small,
)
from tests.tiny import CLOSE, batch, every_sequence, tiny

BIGRAMS = ["aggregate_markov", "local_hmm", "bigram_latent_crf"]


def bigram(model: LanguageModel) -> Tensor:
    """Return the matrix P(v | s), (V, V), from the model's scores."""
    pairs, lengths = every_sequence(model.task)
    scores = log_prob(model, pairs, lengths).exp()
    actual = torch.zeros(VOCAB, VOCAB)
    actual[pairs[:, 1], pairs[:, 2]] = scores[:, 2]
    return actual


def words(model: LanguageModel) -> Tensor:
    """Return P(v | z), (K, V)."""
    return torch.softmax(model.words.means @ model.embedding.weight.T, dim=1).detach()


@pytest.mark.parametrize("name", BIGRAMS)
@pytest.mark.parametrize("components", [1, 2])
def test_bigram_rank_is_the_number_of_classes(name: str, components: int) -> None:
    """With one class all contexts have the same distribution."""
    matrix = bigram(small(name, components=components))
    assert (torch.linalg.svdvals(matrix) > 1e-5).sum() == components
    assert components > 1 or (matrix - matrix[0]).abs().max() < CLOSE


def test_one_class_per_token_represents_any_bigram() -> None:
    """One-hot embeddings, one class per token, and each class has one row of the matrix."""
    model = tiny("aggregate_markov", width=VOCAB, components=VOCAB, length=LENGTH)
    expected = torch.softmax(2 * torch.randn(VOCAB, VOCAB), dim=1)
    set_weights(model, {"embedding.weight": torch.eye(VOCAB), "words.means": expected.log()})
    set_weights(model, {"gate.weight": ALWAYS * torch.eye(VOCAB), "gate.bias": 0.0})
    assert_close(bigram(model), expected, CLOSE, "P(v | s)")


def test_local_hmm_equals_the_two_step_hmm_conditional() -> None:
    """Compute P(s, v) / P(s) by enumerating every pair of states."""
    model = small("local_hmm", components=3)
    start, transition = model.start().exp(), torch.softmax(model.transition, dim=1)
    says, expected = words(model), torch.zeros(VOCAB, VOCAB)
    for s, v in product(range(VOCAB), repeat=2):
        both = [
            start[y] * says[y, s] * transition[y, z] * says[z, v]
            for y, z in product(range(3), repeat=2)
        ]
        before = [start[y] * says[y, s] for y in range(3)]
        expected[s, v] = torch.stack(both).sum() / torch.stack(before).sum()
    assert_close(bigram(model), expected.detach(), CLOSE, "P(v | s)")


def test_local_hmm_with_identity_transition_keeps_the_filtered_state() -> None:
    """Tr = I: P(v | s) = Σ_z P(z | s) P(v | z)."""
    model = small("local_hmm")
    set_weights(model, {"transition": NEVER * (1 - torch.eye(3))})
    filtered = model.filter_states(torch.arange(VOCAB)[None])[0].detach()
    assert_close(bigram(model), filtered @ words(model), CLOSE, "P(v | s)")


def test_local_hmm_with_equal_transition_rows_is_a_unigram() -> None:
    model = small("local_hmm")
    set_weights(model, {"transition": model.transition[:1].expand(3, 3)})
    matrix = bigram(model)
    assert_close(matrix, matrix[:1].expand_as(matrix), CLOSE, "P(v | s)")
    prior = model.prior()
    assert prior is not None
    assert_close(matrix[0], prior.exp().detach() @ words(model), CLOSE, "P(v)")


@pytest.mark.parametrize("name", ["bigram_latent_crf", "trigram_latent_crf"])
def test_potentials_independent_of_the_old_state_give_the_aggregate_markov_model(name: str) -> None:
    chain, plain = small(name), small("aggregate_markov")
    copy_weights(chain, plain, "embedding.weight", "words.means")
    set_weights(chain, {"potentials.weight": plain.gate.weight.repeat(3, 1)})
    set_weights(chain, {"potentials.bias": plain.gate.bias.repeat(3)})
    assert_same_model(chain, plain)


def test_bigram_crf_equals_enumeration_of_its_chain() -> None:
    """Uniform initial z, then exp φ[z, z'], normalised over the whole chain."""
    model = small("bigram_latent_crf")
    phi = model.potentials(model.embedding.weight).view(VOCAB, 3, 3).exp().detach()
    reached = phi.sum(1) / phi.sum((1, 2))[:, None]
    assert_close(bigram(model), reached @ words(model), CLOSE, "P(v | s)")


@pytest.mark.parametrize("norm", list(Norm))
def test_trigram_crf_equals_enumeration_of_its_chain(norm: Norm) -> None:
    """The vector before `<start>` is 1 with every norm."""
    model = small("trigram_latent_crf", norm=norm)
    x = normalise_vectors(model.embedding.weight, norm)
    phi = model.potentials(torch.cat([x, torch.ones(1, 4)])).view(-1, 3, 3).exp().detach()
    k = normalise_vectors(model.words.means, norm)
    says = torch.softmax(k @ model.embedding.weight.T, dim=1).detach()
    tokens, _ = every_sequence(model.task)
    padded = torch.nn.functional.pad(tokens, (1, 0), value=VOCAB)
    for t in range(1, LENGTH):
        first, second = phi[padded[:, t - 1]], phi[padded[:, t]]
        alpha = first.sum(1) / first.sum((1, 2))[:, None]
        reached = torch.einsum("bz,bzy->by", alpha, second)
        expected = (reached / reached.sum(1, keepdim=True)) @ says
        assert_close(
            next_log_prob(model, tokens[:, :t]).exp(), expected, CLOSE, f"after {t} tokens"
        )


@pytest.mark.parametrize("name", [*BIGRAMS, "trigram_latent_crf", "lagged_aggregate_markov"])
def test_posterior_follows_bayes_rule(name: str) -> None:
    """P(z | s_t, s_<t) ∝ P(z | s_<t) P(s_t | z)."""
    model = small(name)
    tokens, lengths = batch(model.task)
    joint = model.log_weights(tokens[:, :-1]).exp() * words(model).T[tokens[:, 1:]]
    expected = (joint / joint.sum(-1, keepdim=True)).transpose(1, 2)
    assert_close(model.posterior(tokens, lengths).detach(), expected.detach(), CLOSE, "posterior")
