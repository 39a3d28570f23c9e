"""Slot models equal their equations; a pointer selects earlier tokens, a chain sums over paths."""

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.functional.normalise import normalise_vectors
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.models.slots import chained_pointers, lag_pointer
from tests.cells.support import torch_layers
from tests.tiny import FINE, batch, tiny

ROWS = [name for name in zoo.names() if zoo.row(name).family == "slot"]


def draw(*shape, seed=0, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(shape, generator=generator, dtype=torch.float64)


def expected_log_prob(model, b):
    """Return log P(v | ..) from the slot values b (B, N·E or E) of one target."""
    words = torch.log_softmax(model.components.vectors() @ model.embedding.weight.T, -1)
    gate = torch.log_softmax(b @ model.gate.weight.T + model.gate.bias, -1)
    return torch.logsumexp(gate[:, :, None] + words, dim=1)


@pytest.mark.parametrize("name", ["chain_slot_ngram", "chain_slot_ngram_emission"])
def test_chained_pointers_follow_the_formula(name):
    """Compute p_2 of the last target with affinity(i, j) + Λ_2[i, j]."""
    model = tiny(name, vocab=6, length=6)
    sources = batch(model.task)[0][:, :-1]
    e = normalise_vectors(model.embedding(sources), model.config.norm)
    first = torch.softmax(model.lags[0, 4] + (e @ model.appeal.weight.T)[..., 0], -1)
    keys = normalise_vectors(model.moves(e), model.config.norm)
    affinity = keys @ e.mT
    if model.affinity is not None:
        component = torch.softmax(model.affinity(keys), -1)
        words = torch.softmax(model.components.vectors() @ model.embedding.weight.T, -1)
        by_word = torch.log(component @ words)  # B S V
        affinity = torch.stack([a[:, s] for a, s in zip(by_word, sources, strict=True)])
    second = (first[:, None] @ torch.softmax(affinity + model.lags[1], -1))[:, 0]
    actual = model.source_pointers(sources)[:, :, 4]
    torch.testing.assert_close(actual, torch.stack([first, second], dim=1))
    b = (actual @ e).flatten(1)
    torch.testing.assert_close(model.next_log_prob(sources), expected_log_prob(model, b))


def test_an_lstm_reads_slots_in_order_from_a_state_of_ones():
    model = tiny("chain_slot_lstm", vocab=6, length=6, slots=3)
    library = torch_layers(model.reader)
    sources = batch(model.task)[0][:, :-1]
    e = normalise_vectors(model.embedding(sources), model.config.norm)
    b = model.source_pointers(sources)[:, :, 4] @ e
    ones = torch.ones(1, len(b), 4)
    y = normalise_vectors(library(b, (ones, ones))[0][:, -1], model.config.norm)
    torch.testing.assert_close(model.next_log_prob(sources), expected_log_prob(model, y))


@pytest.mark.parametrize("name", ROWS)
def test_posterior_and_prior_are_the_first_pointer(name):
    model = tiny(name, vocab=5, length=6, slots=3)
    tokens, lengths = batch(model.task)
    first = model.source_pointers(tokens[:, :-1])[:, 0]
    assert (first.masked_select(~causal_mask(5)) == 0).all()
    torch.testing.assert_close(model.posterior(tokens, lengths)[:, 2, 4], first[:, 4, 2])
    with torch.no_grad():
        model.appeal.weight.zero_()  # the prior has no token scores
    first = model.source_pointers(tokens[:, :-1])[0, 0]
    if name == "slot_ngram":
        prior = model.prior()[0]
    else:
        prior = model.prior()
    torch.testing.assert_close(prior.exp(), first.mT)


def one_matrix_per_target(first: Tensor, scores: Tensor) -> Tensor:
    visible = causal_mask(first.shape[-1])
    pointers = [first]
    for score in scores:
        step = score[:, None].masked_fill(~visible[:, None], -torch.inf).softmax(-1)
        pointers.append((pointers[-1][..., None, :] @ step)[..., 0, :])
    return torch.stack(pointers, dim=1)


@pytest.mark.parametrize("sources", [1, 7, 8, 9, 20])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_blocks_of_targets_equal_one_matrix_per_target(sources, spread):
    """A spread of 300 nats would overflow exponentials of score differences."""
    first = lag_pointer(draw(sources, sources), draw(2, sources, seed=1)).requires_grad_()
    scores = draw(2, 2, sources, sources, seed=2, spread=spread).requires_grad_()
    weights = draw(2, 3, sources, sources, seed=3) * causal_mask(sources)
    actual, reference = (f(first, scores) for f in (chained_pointers, one_matrix_per_target))
    torch.testing.assert_close(actual, reference, rtol=0, atol=FINE)
    gradients = [
        torch.autograd.grad((y * weights).sum(), (first, scores)) for y in (actual, reference)
    ]
    for a, b in zip(*gradients, strict=True):
        # Masked entries of `first` are always zero, so their gradients do not matter.
        a, b = (g if g.dim() == 4 else g * causal_mask(sources) for g in (a, b))
        torch.testing.assert_close(a, b, rtol=0, atol=FINE)


@pytest.mark.parametrize(
    ("row", "fields", "message"),
    [
        ("slot_ngram", {"norm": "time_std_causal"}, "slots normalise single vectors.*causal"),
        ("chain_slot_ngram", {"slots": 1}, r"slots: .*got 1"),
    ],
)
def test_fields_that_do_not_fit_are_refused(row, fields, message):
    with pytest.raises(ValueError, match=message):
        zoo.config(row, **fields)
