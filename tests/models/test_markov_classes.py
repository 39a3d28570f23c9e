"""Soft classes of one or two tokens: limits and brute force (DLM10, 15, 16, 17, 27)."""

from itertools import product

import pytest
import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.limits import ALWAYS, LENGTH, NEVER, VOCAB, copied, put, row, same_model, sees
from tests.tiny import CLOSE, batch, every_sequence, tiny

BIGRAMS = ["aggregate_markov", "local_hmm", "bigram_latent_crf"]


def bigram(model: LanguageModel) -> Tensor:
    """The matrix P(v | s), (V, V), as the model scores it."""
    pairs, lengths = every_sequence(model.task)
    scores = log_prob(model, pairs, lengths).exp()
    found = torch.zeros(VOCAB, VOCAB)
    found[pairs[:, 1], pairs[:, 2]] = scores[:, 2]
    return found


def words(model: LanguageModel) -> Tensor:
    """P(v | z), (K, V)."""
    return torch.softmax(model.words.means @ model.embedding.weight.T, dim=1).detach()


@pytest.mark.parametrize("name", [*BIGRAMS, "trigram_latent_crf"])
def test_exactly_the_last_tokens_are_seen(name: str) -> None:
    assert sees(row(name)) == [True, name == "trigram_latent_crf", False]


@pytest.mark.parametrize("name", BIGRAMS)
@pytest.mark.parametrize("components", [1, 2])
def test_the_rank_of_a_bigram_is_at_most_its_classes(name: str, components: int) -> None:
    """One class is a unigram: all contexts alike."""
    matrix = bigram(row(name, components=components))
    assert (torch.linalg.svdvals(matrix) > 1e-5).sum() == components
    assert components > 1 or (matrix - matrix[0]).abs().max() < CLOSE


def test_as_many_classes_as_words_are_any_bigram() -> None:
    """One-hot embeddings, a class per word, and each class a row of the matrix."""
    model = tiny("aggregate_markov", width=VOCAB, components=VOCAB, length=LENGTH)
    wanted = torch.softmax(2 * torch.randn(VOCAB, VOCAB), dim=1)
    put(model, {"embedding.weight": torch.eye(VOCAB), "words.means": wanted.log()})
    put(model, {"gate.weight": ALWAYS * torch.eye(VOCAB), "gate.bias": 0.0})
    assert_close(bigram(model), wanted, CLOSE, "P(v | s)")


def test_the_hidden_markov_bigram_is_the_two_step_conditional() -> None:
    """P(s, v) / P(s), every pair of states enumerated."""
    model = row("local_hmm", components=3)
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


def test_a_state_that_stays_says_the_next_word() -> None:
    """Tr = I: P(v | s) = Σ_z P(z | s) P(v | z)."""
    model = row("local_hmm")
    put(model, {"transition": NEVER * (1 - torch.eye(3))})
    filtered = model.filter_states(torch.arange(VOCAB)[None])[0].detach()
    assert_close(bigram(model), filtered @ words(model), CLOSE, "P(v | s)")


def test_a_state_that_forgets_is_a_unigram() -> None:
    model = row("local_hmm")
    put(model, {"transition": model.transition[:1].expand(3, 3)})
    matrix = bigram(model)
    assert_close(matrix, matrix[:1].expand_as(matrix), CLOSE, "P(v | s)")
    prior = model.prior()
    assert prior is not None
    assert_close(matrix[0], prior.exp().detach() @ words(model), CLOSE, "P(v)")


@pytest.mark.parametrize("name", ["bigram_latent_crf", "trigram_latent_crf"])
def test_potentials_blind_to_the_old_state_are_the_aggregate_markov_model(name: str) -> None:
    chain, plain = row(name), row("aggregate_markov")
    copied(chain, plain, "embedding.weight", "words.means")
    put(chain, {"potentials.weight": plain.gate.weight.repeat(3, 1)})
    put(chain, {"potentials.bias": plain.gate.bias.repeat(3)})
    same_model(chain, plain)


def test_one_hop_enumerates_its_chain() -> None:
    """An even start over z, then exp φ[z, z'], normalised over the whole chain."""
    model = row("bigram_latent_crf")
    phi = model.potentials(model.embedding.weight).view(VOCAB, 3, 3).exp().detach()
    reached = phi.sum(1) / phi.sum((1, 2))[:, None]
    assert_close(bigram(model), reached @ words(model), CLOSE, "P(v | s)")


@pytest.mark.parametrize("norm", list(Norm))
def test_two_hops_enumerate_their_chain(norm: Norm) -> None:
    """The pad before `<start>` is the vector 1 whatever the norm."""
    model = row("trigram_latent_crf", norm=norm)
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


def test_the_sphere_changes_nothing_that_is_on_it() -> None:
    sphere, plain = row("trigram_latent_crf_sphere"), row("trigram_latent_crf")
    for model in (sphere, plain):
        for name in ("embedding.weight", "words.means"):
            put(model, {name: normalise_vectors(model.get_parameter(name), Norm.RMS)})
    copied(plain, sphere, *dict(sphere.named_parameters()))
    same_model(sphere, plain)


@pytest.mark.parametrize("name", [*BIGRAMS, "trigram_latent_crf", "lagged_aggregate_markov"])
def test_the_posterior_is_bayes_rule(name: str) -> None:
    """P(z | s_t, s_<t) ∝ P(z | s_<t) P(s_t | z)."""
    model = row(name)
    tokens, lengths = batch(model.task)
    joint = model.log_weights(tokens[:, :-1]).exp() * words(model).T[tokens[:, 1:]]
    expected = (joint / joint.sum(-1, keepdim=True)).transpose(1, 2)
    assert_close(model.posterior(tokens, lengths).detach(), expected.detach(), CLOSE, "posterior")
