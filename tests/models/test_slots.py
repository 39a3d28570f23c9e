"""Slot models equal their equations; a pointer selects earlier tokens, a chain sums over paths."""

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.functional.normalise import normalise_vectors
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.models.slots import chained_pointers, lag_pointer
from tests.cells.support import torch_layers
from tests.tiny import assert_equal_double, batch, tiny

ROWS = [name for name in zoo.names() if zoo.row(name).family == "slot"]


def draw(*shape, seed=0, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(shape, generator=generator, dtype=torch.float64)


def expected_log_prob(model, b):
    """Return log P(v | ..) from the slot values b (B, N·E or E) of one target."""
    logits = model.components.vectors() @ model.embedding.weight.T
    words = torch.log_softmax(logits, -1)
    gate = torch.log_softmax(model.gate(b), -1)
    return torch.logsumexp(gate[:, :, None] + words, dim=1)


def normed_embedding(model, tokens):
    return normalise_vectors(model.embedding(tokens), model.config.norm)


def affinities(model, sources):
    """Return how much each source likes each other one, (B, S, S)."""
    e = normed_embedding(model, sources)
    keys = normalise_vectors(model.moves(e), model.config.norm)
    if model.affinity is None:
        return keys @ e.mT
    component = torch.softmax(model.affinity(keys), -1)
    logits = model.components.vectors() @ model.embedding.weight.T
    by_word = torch.log(component @ torch.softmax(logits, -1))  # B S V
    return torch.stack([by_word[b][:, words] for b, words in enumerate(sources)])


@pytest.mark.parametrize("name", ["chain_slot_ngram", "chain_slot_ngram_emission"])
def test_chained_pointers_follow_the_formula(name):
    """Compute p_2 of the last target with affinity(i, j) + Λ_2[i, j]."""
    model = tiny(name, vocab=6, length=6)
    # The last target is at position 4 of the sources.
    sources = batch(model.task)[0][:, :-1]
    e = normed_embedding(model, sources)
    appeal = model.appeal(e)[..., 0]
    first = torch.softmax(model.lags[0, 4] + appeal, -1)
    moves = torch.softmax(affinities(model, sources) + model.lags[1], -1)
    second = (first[:, None] @ moves)[:, 0]
    actual = model.source_pointers(sources)[:, :, 4]
    torch.testing.assert_close(actual, torch.stack([first, second], dim=1))


@pytest.mark.parametrize("name", ["chain_slot_ngram", "chain_slot_ngram_emission"])
def test_the_next_token_reads_what_the_pointers_select(name):
    model = tiny(name, vocab=6, length=6)
    sources = batch(model.task)[0][:, :-1]
    pointers = model.source_pointers(sources)[:, :, 4]
    b = (pointers @ normed_embedding(model, sources)).flatten(1)
    torch.testing.assert_close(model.next_log_prob(sources), expected_log_prob(model, b))


def test_an_lstm_reads_slots_in_order_from_a_state_of_ones():
    model = tiny("chain_slot_lstm", vocab=6, length=6, slots=3)
    library = torch_layers(model.reader)
    sources = batch(model.task)[0][:, :-1]
    pointers = model.source_pointers(sources)[:, :, 4]
    b = pointers @ normed_embedding(model, sources)
    ones = torch.ones(1, len(b), 4)
    outputs, _ = library(b, (ones, ones))
    y = normalise_vectors(outputs[:, -1], model.config.norm)
    torch.testing.assert_close(model.next_log_prob(sources), expected_log_prob(model, y))


@pytest.mark.parametrize("name", ROWS)
def test_the_posterior_is_the_first_pointer(name):
    model = tiny(name, vocab=5, length=6, slots=3)
    tokens, lengths = batch(model.task)
    first = model.source_pointers(tokens[:, :-1])[:, 0]
    assert not first.masked_select(~causal_mask(5)).any()
    posterior = model.posterior(tokens, lengths)
    torch.testing.assert_close(posterior[:, 2, 4], first[:, 4, 2])


@pytest.mark.parametrize("name", ROWS)
def test_the_prior_is_the_first_pointer_without_token_scores(name):
    model = tiny(name, vocab=5, length=6, slots=3)
    tokens, _ = batch(model.task)
    with torch.no_grad():
        model.appeal.weight.zero_()
    first = model.source_pointers(tokens[:, :-1])[0, 0]
    prior = model.prior()
    if name == "slot_ngram":
        prior = prior[0]
    torch.testing.assert_close(prior.exp(), first.mT)


def one_matrix_per_target(first: Tensor, scores: Tensor) -> Tensor:
    hidden = ~causal_mask(first.shape[-1])
    pointers = [first]
    for score in scores:
        by_target = score[:, None].masked_fill(hidden[:, None], -torch.inf)
        moved = pointers[-1][..., None, :] @ by_target.softmax(-1)
        pointers.append(moved[..., 0, :])
    return torch.stack(pointers, dim=1)


@pytest.mark.parametrize("sources", [1, 7, 8, 9, 20])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_blocks_of_targets_equal_one_matrix_per_target(sources, spread):
    """A spread of 300 nats would overflow exponentials of score differences."""
    visible = causal_mask(sources)
    first = lag_pointer(draw(sources, sources), draw(2, sources, seed=1)).requires_grad_()
    scores = draw(2, 2, sources, sources, seed=2, spread=spread).requires_grad_()
    weights = draw(2, 3, sources, sources, seed=3) * visible

    def with_gradients(function):
        pointers = function(first, scores)
        total = (pointers * weights).sum()
        of_first, of_scores = torch.autograd.grad(total, (first, scores))
        # Masked entries of `first` are always zero, so their gradients do not matter.
        return pointers, of_first * visible, of_scores

    actual = with_gradients(chained_pointers)
    expected = with_gradients(one_matrix_per_target)
    for part, expected_part in zip(actual, expected, strict=True):
        assert_equal_double(part, expected_part)
