"""Slot models equal their equations; a pointer selects earlier tokens, a chain sums over paths."""

import torch

from lmzoo import zoo
from lmzoo.functional.normalise import normalise_vectors
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.models.slots import chained_pointers, lag_pointer
from tests.cases import parametrize
from tests.cells.support import torch_layers
from tests.tiny import assert_equal_double, batch, tiny

FAMILIES = {name: zoo.row(name).family for name in zoo.names()}
ROWS = [name for name, family in FAMILIES.items() if family == "slot"]
CHAINS = parametrize("name", ["chain_slot_ngram", "chain_slot_ngram_emission"])


def draw(*shape, seed=0, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    return spread * drawn


def component_logits(model):
    return model.components.vectors() @ model.embedding.weight.T


def expected_log_prob(model, b):
    """Return log P(v | ..) from the slot values b (B, N·E or E) of one target."""
    words = torch.log_softmax(component_logits(model), -1)
    gate = torch.log_softmax(model.gate(b), -1)
    joint = gate[:, :, None] + words
    return torch.logsumexp(joint, dim=1)


def normed(model, vectors):
    return normalise_vectors(vectors, model.config.norm)


def normed_embedding(model, tokens):
    return normed(model, model.embedding(tokens))


def last_pointers(model, sources):
    """Return the pointers of the last target, which is at position 4, (B, N, S)."""
    pointers = model.source_pointers(sources)
    return pointers[:, :, 4]


def read_tokens(model):
    """Return tokens before the last one."""
    tokens, _ = batch(model.task)
    return tokens[:, :-1]


def affinities(model, sources):
    """Return how much each source likes each other one, (B, S, S)."""
    e = normed_embedding(model, sources)
    keys = normed(model, model.moves(e))
    if model.affinity is None:
        return keys @ e.mT
    component = torch.softmax(model.affinity(keys), -1)
    words = torch.softmax(component_logits(model), -1)
    by_word = torch.log(component @ words)  # B S V
    # The words at the sources.
    positions = by_word.shape[1]
    index = sources[:, None].expand(-1, positions, -1)
    return by_word.gather(2, index)


@CHAINS
def test_chained_pointers_follow_the_formula(name):
    """Compute p_2 of the last target with affinity(i, j) + Λ_2[i, j]."""
    model = tiny(name, vocab=6, length=6)
    sources = read_tokens(model)
    e = normed_embedding(model, sources)
    appeal = model.appeal(e)[..., 0]
    logits = model.lags[0, 4] + appeal
    first = torch.softmax(logits, -1)
    scores = affinities(model, sources) + model.lags[1]
    moves = torch.softmax(scores, -1)
    second = torch.einsum("bi,bij->bj", first, moves)
    actual = last_pointers(model, sources)
    expected = torch.stack([first, second], dim=1)
    torch.testing.assert_close(actual, expected)


@CHAINS
def test_the_next_token_reads_what_the_pointers_select(name):
    model = tiny(name, vocab=6, length=6)
    sources = read_tokens(model)
    pointers = last_pointers(model, sources)
    b = pointers @ normed_embedding(model, sources)
    b = b.flatten(1)
    actual = model.next_log_prob(sources)
    expected = expected_log_prob(model, b)
    torch.testing.assert_close(actual, expected)


def test_an_lstm_reads_slots_in_order_from_a_state_of_ones():
    model = tiny("chain_slot_lstm", vocab=6, length=6, slots=3)
    library = torch_layers(model.reader)
    sources = read_tokens(model)
    pointers = last_pointers(model, sources)
    b = pointers @ normed_embedding(model, sources)
    ones = torch.ones(1, len(b), 4)
    outputs, _ = library(b, (ones, ones))
    y = normed(model, outputs[:, -1])
    actual = model.next_log_prob(sources)
    expected = expected_log_prob(model, y)
    torch.testing.assert_close(actual, expected)


@parametrize("name", ROWS)
def test_the_posterior_is_the_first_pointer(name):
    model = tiny(name, vocab=5, length=6, slots=3)
    tokens, lengths = batch(model.task)
    pointers = model.source_pointers(tokens[:, :-1])
    first = pointers[:, 0]
    later = ~causal_mask(5)
    assert not first.masked_select(later).any()
    posterior = model.posterior(tokens, lengths)
    actual = posterior[:, 2, 4]
    expected = first[:, 4, 2]
    torch.testing.assert_close(actual, expected)


@parametrize("name", ROWS)
def test_the_prior_is_the_first_pointer_without_token_scores(name):
    model = tiny(name, vocab=5, length=6, slots=3)
    with torch.no_grad():
        model.appeal.weight.zero_()
    pointers = model.source_pointers(read_tokens(model))
    first = pointers[0, 0]
    prior = model.prior()
    if name == "slot_ngram":
        prior = prior[0]
    actual = prior.exp()
    torch.testing.assert_close(actual, first.mT)


def one_matrix_per_target(first, scores):
    steps = first.shape[-1]
    hidden = ~causal_mask(steps)[:, None]
    pointers = [first]
    for score in scores:
        # The rows of a target have no mass after it.
        every_target = score[:, None]
        by_target = every_target.masked_fill(hidden, -torch.inf)
        moves = by_target.softmax(-1)
        moved = pointers[-1][..., None, :] @ moves
        pointers.append(moved[..., 0, :])
    return torch.stack(pointers, dim=1)


@parametrize("sources", [1, 7, 8, 9, 20])
@parametrize("spread", [1.0, 300.0])
def test_blocks_of_targets_equal_one_matrix_per_target(sources, spread):
    """A spread of 300 nats would overflow exponentials of score differences."""
    visible = causal_mask(sources)
    # Each part has a seed of its own.
    appeal = draw(2, sources, seed=1)
    first = lag_pointer(draw(sources, sources), appeal)
    first.requires_grad_()
    scores = draw(2, 2, sources, sources, seed=2, spread=spread)
    scores.requires_grad_()
    weights = draw(2, 3, sources, sources, seed=3)
    weights = weights * visible

    def with_gradients(function):
        pointers = function(first, scores)
        total = (pointers * weights).sum()
        inputs = (first, scores)
        of_first, of_scores = torch.autograd.grad(total, inputs)
        # Masked entries of `first` are always zero, so their gradients do not matter.
        return pointers, of_first * visible, of_scores

    actual = with_gradients(chained_pointers)
    expected = with_gradients(one_matrix_per_target)
    for part, expected_part in zip(actual, expected, strict=True):
        assert_equal_double(part, expected_part)
