"""Count models equal a reference of every smoothing rule, and manual calculations."""

import math
from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo import zoo
from lmzoo.contract import START, Task
from lmzoo.models.count import FALLBACK, discounts, estimate_weights
from tests.models.reference_kneser_ney import ReferenceKneserNey
from tests.models.sentences import pad_sentences, random_sentences
from tests.tiny import quick

A = 4
B = 5
C = 6
VOCAB = 14
LENGTH = 8
TRAIN = random_sentences(120, VOCAB, LENGTH, seed=0)
OTHER = random_sentences(40, VOCAB, LENGTH, seed=1)


def fitted(sentences, vocab=VOCAB, length=LENGTH, **fields):
    model = zoo.build(zoo.config("ngram_count", **fields), Task(vocab=vocab, length=length))
    model.fit_closed_form(*pad_sentences(sentences, length))
    return model


def nll(model, sentences):
    """Return nats per scored token."""
    tokens, lengths = pad_sentences(sentences, model.task.length)
    return -(model.log_prob(tokens, lengths).double().sum() / (lengths - 1).sum()).item()


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_kneser_ney_equals_the_reference_implementation(order):
    """The corpus is large enough to estimate the discounts of orders 2 and above."""
    vocab = 18
    length = 9
    train = random_sentences(300, vocab, length, seed=0)
    held_out = random_sentences(8, vocab, length, seed=1)
    model = fitted(train, vocab, length, order=order)
    reference = ReferenceKneserNey(train, order, vocab)
    assert all(reference.discounts[n] != FALLBACK for n in range(2, order + 1))
    tokens, lengths = pad_sentences(held_out, length)
    scores = model.log_prob(tokens, lengths).exp()
    for sentence, actual in zip(held_out, scores.tolist(), strict=True):
        for t in range(1, len(sentence)):
            expected = reference.probability(sentence[t], sentence[:t])
            assert actual[t] == pytest.approx(expected, rel=1e-5)


@quick
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), min_size=1, max_size=6),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_kneser_ney_of_random_small_corpora_equals_the_reference(sentences, prefix, order):
    """Corpora too small for discounts, with `<start>` and `<end>` at any position."""
    train = [(START, *s) for s in sentences]
    model = fitted(train, 5, 6, order=order)
    reference = ReferenceKneserNey(train, order, 5)
    dense = model.next_log_prob(torch.tensor([[START, *prefix]]))[0].double().exp()
    assert dense.sum().item() == pytest.approx(1, abs=1e-6)
    expected = [reference.probability(v, (START, *prefix)) for v in range(5)]
    assert dense.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "counts",
    [
        [1] * 4 + [2] * 2 + [3] * 30 + [4],  # D_2 = 2 − 3·½·(30/2) < 0
        [1] * 16 + [2] * 8 + [3] * 2 + [4] * 3,  # Y = ½, D_3 = 3 − 4·½·3/2 = 0
    ],
)
def test_discounts_of_zero_or_out_of_range_fall_back_to_constants(counts):
    assert discounts(torch.tensor(counts)) == FALLBACK


def reference(sentences, fields, lambdas, vocab=VOCAB):
    """Return P(v | history) of a smoothing rule other than Kneser-Ney, from dictionaries."""
    counts: dict[tuple, Counter] = defaultdict(Counter)
    for s in sentences:
        for t in range(1, len(s)):
            for k in range(min(fields["order"], t + 1)):
                counts[s[t - k : t]][s[t]] += 1
    alpha = fields.get("alpha", 0.0)

    def probability(word, history):
        after = counts.get(history, Counter())
        total = counts.get(history, Counter()).total()
        if fields["smoothing"] == "jelinek_mercer":
            if history:
                below = probability(word, history[1:])
            else:
                below = 1 / vocab
            weight = lambdas[len(history)]
            if total:
                return weight * after[word] / total + (1 - weight) * below
            return below
        if total + alpha * vocab == 0 or not total:
            return 1 / vocab
        return (after[word] + alpha) / (total + alpha * vocab)

    return lambda word, s: probability(word, s[max(0, len(s) - fields["order"] + 1) :])


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize(
    "smoothing",
    [
        {"smoothing": "none"},
        {"smoothing": "add_alpha", "alpha": 0.5},
        {"smoothing": "jelinek_mercer"},
    ],
)
def test_other_smoothing_equals_the_reference(smoothing, order, monkeypatch):
    fields = {**smoothing, "order": order}
    lambdas = [0.3, 0.6, 0.8, 0.4][:order]

    def estimate(frequencies, *_):
        assert frequencies.shape[1] == sum(len(s) - 1 for s in TRAIN[::10])  # every tenth
        return lambdas

    monkeypatch.setattr("lmzoo.models.count.estimate_weights", estimate)
    model = fitted(TRAIN, **fields)
    probability = reference(TRAIN, fields, lambdas)
    tokens, lengths = pad_sentences(OTHER, LENGTH)
    for s, scores in zip(OTHER, model.log_prob(tokens, lengths).exp().tolist(), strict=True):
        expected = [probability(s[t], s[:t]) for t in range(1, len(s))]
        assert scores[1 : len(s)] == pytest.approx(expected, rel=1e-5)
        dense = model.next_log_prob(torch.tensor([s[:-1]]))[0].exp().tolist()
        assert dense == pytest.approx([probability(v, s[:-1]) for v in range(VOCAB)], rel=1e-5)


def test_jelinek_mercer_weights_maximise_the_held_out_likelihood():
    """No pair of weights on a grid gives the held-out tokens a higher likelihood."""
    frequency = torch.tensor([[0.3, 0.0, 0.0, 0.2, 0.1], [0.01, 0.5, 0.0, 0.0, 0.02]]).double()
    known = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 1, 1]]).double()

    def likelihood(low, high):
        below = low * known[0] * frequency[0] + (1 - low * known[0]) / 20
        weight = high * known[1]
        return (weight * frequency[1] + (1 - weight) * below).log().sum().item()

    actual = estimate_weights(frequency, known, 20, rounds=500)
    grid = [i / 40 for i in range(1, 40)]
    assert likelihood(*actual) >= max(likelihood(a, b) for a in grid for b in grid) - 1e-6


def test_an_unfitted_model_is_uniform_and_a_second_fit_replaces_the_first():
    model = zoo.build(zoo.config("ngram_count"), Task(vocab=VOCAB, length=LENGTH))
    assert nll(model, OTHER) == pytest.approx(math.log(VOCAB))
    for sentences in (OTHER, TRAIN):
        model.fit_closed_form(*pad_sentences(sentences, LENGTH))
    assert nll(model, OTHER) == nll(fitted(TRAIN), OTHER)
