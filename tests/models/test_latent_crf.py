"""Latent Markov models of one or two tokens: limits and enumeration (DLM10, 15, 16, 17, 27)."""

from itertools import product

import pytest
import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.laws.support import assert_close, log_prob, next_log_prob
from tests.models.equivalence import (
    LENGTH,
    VOCAB,
    small,
)
from tests.tiny import CLOSE, batch, every_sequence

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
