"""Slot models: scores equal the formulas, and rows are related as documented."""

import pytest
import torch
from torch import nn

from lmzoo import zoo
from lmzoo.functional.normalise import normalise_vectors
from tests.tiny import batch, tiny

CHAINS = ("chain_slot_ngram", "chain_slot_ngram_emission", "chain_slot_lstm_emission",
          "chain_slot_lstm")  # fmt: skip


def expected_log_prob(model, b):
    """Return log P(v | ..) from the slot values b (B, N·E or E) of one target."""
    words = torch.log_softmax(model.components.vectors() @ model.embedding.weight.T, -1)
    gate = torch.log_softmax(b @ model.gate.weight.T + model.gate.bias, -1)
    return torch.logsumexp(gate[:, :, None] + words, dim=1)


def test_one_slot_per_lag_gives_an_n_gram_window():
    """With Λ_n on lag n and B = 0, slot n has the value ê_{t-n}."""
    model = tiny("slot_ngram", vocab=6, length=7, slots=3)
    with torch.no_grad():
        model.appeal.weight.zero_()
        model.lags.fill_(-200.0)
        for n in range(3):
            for t in range(n, 6):
                model.lags[n, t, t - n] = 200.0
    tokens, _ = batch(model.task)
    e = normalise_vectors(model.embedding(tokens), model.config.norm)
    window = torch.cat([e[:, 4], e[:, 3], e[:, 2]], dim=-1)
    actual = model.next_log_prob(tokens[:, :5])
    torch.testing.assert_close(actual, expected_log_prob(model, window))


def test_chained_pointers_follow_the_formula():
    """Compute p_2 of the last target with key scores N(M ê_i)·ê_j + Λ_2[i, j]."""
    model = tiny("chain_slot_ngram", vocab=6, length=6)
    sources = batch(model.task)[0][:, :-1]
    e = normalise_vectors(model.embedding(sources), model.config.norm)
    first = torch.softmax(model.lags[0, 4] + (e @ model.appeal.weight.T)[..., 0], -1)
    keys = normalise_vectors(model.moves(e), model.config.norm)
    step = torch.softmax(keys @ e.mT + model.lags[1], -1)
    second = (first[:, None] @ step)[:, 0]
    actual = model.source_pointers(sources)[:, :, 4]
    torch.testing.assert_close(actual, torch.stack([first, second], dim=1))
    b = (actual @ e).flatten(1)
    torch.testing.assert_close(model.next_log_prob(sources), expected_log_prob(model, b))


def test_emission_affinity_is_the_log_probability_of_the_target_token():
    model = tiny("chain_slot_ngram_emission", vocab=6, length=6)
    sources = batch(model.task)[0][:, :-1]
    e = normalise_vectors(model.embedding(sources), model.config.norm)
    moved = normalise_vectors(model.moves(e), model.config.norm)
    component = torch.softmax(model.affinity(moved), -1)
    words = torch.softmax(model.components.vectors() @ model.embedding.weight.T, -1)
    affinity = torch.log(component @ words)  # B S V
    affinity = torch.stack([a[:, s] for a, s in zip(affinity, sources, strict=True)])
    step = torch.softmax(affinity + model.lags[1], -1)
    first, second = model.source_pointers(sources)[:, :, 4].unbind(1)
    torch.testing.assert_close(second, (first[:, None] @ step)[:, 0])


def test_normalised_affinity_gives_the_same_pointers():
    """DLM32 equals DLM31: a constant per i cancels in the softmax over j."""
    model = tiny("chain_slot_ngram", vocab=6, length=6, slots=3)
    sources = batch(model.task)[0][:, :-1]
    before = model.source_pointers(sources)
    plain = model._affinities
    model._affinities = lambda *args: torch.log_softmax(plain(*args), dim=-1)
    torch.testing.assert_close(model.source_pointers(sources), before)


@pytest.mark.parametrize(
    ("lstm", "concat"),
    [
        ("chain_slot_lstm", "chain_slot_ngram"),
        ("chain_slot_lstm_emission", "chain_slot_ngram_emission"),
    ],
)
def test_lstm_row_without_its_lstm_is_the_concat_row(lstm, concat):
    model, plain = tiny(lstm, vocab=6, length=6), tiny(concat, vocab=6, length=6)
    tokens, lengths = batch(model.task)
    assert not torch.allclose(model.log_prob(tokens, lengths), plain.log_prob(tokens, lengths))
    model.reader, model.gate = None, plain.gate
    torch.testing.assert_close(model.log_prob(tokens, lengths), plain.log_prob(tokens, lengths))


def test_lstm_reads_slots_in_order_from_a_state_of_ones():
    model = tiny("chain_slot_lstm", vocab=6, length=6, slots=3)
    library = nn.LSTM(4, 4, batch_first=True)
    with torch.no_grad():
        for name, weight in model.reader.w.named_parameters():
            getattr(library, f"{name}_l0").copy_(weight)
    sources = batch(model.task)[0][:, :-1]
    e = normalise_vectors(model.embedding(sources), model.config.norm)
    b = model.source_pointers(sources)[:, :, 4] @ e
    ones = torch.ones(1, len(b), 4)
    y = normalise_vectors(library(b, (ones, ones))[0][:, -1], model.config.norm)
    torch.testing.assert_close(model.next_log_prob(sources), expected_log_prob(model, y))


@pytest.mark.parametrize("name", ["slot_ngram", *CHAINS])
def test_single_component_ignores_the_context(name):
    model = tiny(name, vocab=6, length=6, components=1)
    tokens, _ = batch(model.task)
    dense = torch.stack([model.next_log_prob(tokens[:, :t]) for t in range(1, 6)])
    torch.testing.assert_close(dense, dense[:1, :1].expand_as(dense))


@pytest.mark.parametrize("name", ["slot_ngram", *CHAINS])
def test_prior_is_the_first_pointer_without_token_scores(name):
    model = tiny(name, vocab=6, length=6)
    with torch.no_grad():
        model.appeal.weight.zero_()
    prior = model.prior() if name != "slot_ngram" else model.prior()[0]
    actual = model.source_pointers(batch(model.task)[0][:, :-1])[0, 0]
    torch.testing.assert_close(prior.exp(), actual.mT)


def test_chain_of_one_slot_is_refused():
    assert zoo.config("slot_ngram", slots=1).slots == 1
    with pytest.raises(ValueError, match=r"slots: .*got 1"):
        zoo.config("chain_slot_ngram", slots=1)
