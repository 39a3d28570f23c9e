"""Count models equal a reference of every smoothing rule, and manual calculations."""

import itertools
import math
from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo import zoo
from lmzoo.contract import START, Task
from lmzoo.models.count import FALLBACK, discounts, estimate_weights
from tests.cases import cases
from tests.models.reference_kneser_ney import ReferenceKneserNey
from tests.models.sentences import pad_sentences, random_sentences
from tests.tiny import quick

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
    total = model.log_prob(tokens, lengths).double().sum()
    return -(total / (lengths - 1).sum()).item()


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_kneser_ney_equals_the_reference_implementation(order):
    """The corpus is large enough to estimate the discounts of orders 2 and above."""
    vocab = 18
    length = 9
    train = random_sentences(300, vocab, length, seed=0)
    held_out = random_sentences(8, vocab, length, seed=1)
    model = fitted(train, vocab, length, order=order)
    reference = ReferenceKneserNey(train, order, vocab)
    for n in range(2, order + 1):
        assert reference.discounts[n] != FALLBACK
    tokens, lengths = pad_sentences(held_out, length)
    scores = model.log_prob(tokens, lengths).exp()
    for sentence, actual in zip(held_out, scores.tolist(), strict=True):
        for t in range(1, len(sentence)):
            expected = reference.probability(sentence[t], sentence[:t])
            assert actual[t] == pytest.approx(expected, rel=1e-5)


SMALL_VOCAB = 5
SENTENCES = st.lists(st.integers(0, 4), min_size=1, max_size=5)
PREFIXES = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@quick
@given(st.lists(SENTENCES, min_size=1, max_size=6), PREFIXES, st.integers(1, 4))
def test_kneser_ney_of_random_small_corpora_equals_the_reference(sentences, prefix, order):
    """Corpora too small for discounts, with `<start>` and `<end>` at any position."""
    train = [(START, *sentence) for sentence in sentences]
    model = fitted(train, SMALL_VOCAB, 6, order=order)
    reference = ReferenceKneserNey(train, order, SMALL_VOCAB)
    history = (START, *prefix)
    dense = model.next_log_prob(torch.tensor([history]))[0].double().exp()
    expected = [reference.probability(word, history) for word in range(SMALL_VOCAB)]
    assert dense.sum().item() == pytest.approx(1, abs=1e-6)
    assert dense.tolist() == pytest.approx(expected, rel=1e-5)


def counted(*grams: int) -> torch.Tensor:
    """Return counts, given how many n-grams are seen once, twice, ..."""
    return torch.arange(1, len(grams) + 1).repeat_interleave(torch.tensor(grams))


def test_a_negative_discount_falls_back_to_constants():
    """D_2 = 2 − 3·½·(30/2) < 0."""
    assert discounts(counted(4, 2, 30, 1)) == FALLBACK


def test_a_discount_of_zero_falls_back_to_constants():
    """Y = ½, D_3 = 3 − 4·½·3/2 = 0."""
    assert discounts(counted(16, 8, 2, 3)) == FALLBACK


class Smoothed:
    """P(v | history) of a smoothing rule other than Kneser-Ney, from dictionaries."""

    def __init__(self, sentences, fields, lambdas):
        self.fields = fields
        self.order = fields["order"]
        self.alpha = fields.get("alpha", 0.0)
        self.lambdas = lambdas
        self.counts: dict[tuple, Counter] = defaultdict(Counter)
        for sentence in sentences:
            for t in range(1, len(sentence)):
                for size in range(min(self.order, t + 1)):
                    context = sentence[t - size : t]
                    self.counts[context][sentence[t]] += 1

    def probability(self, word, history):
        """Return P(word | history), the whole sentence so far."""
        context = history[max(0, len(history) - self.order + 1) :]
        if self.fields["smoothing"] == "jelinek_mercer":
            return self.interpolated(word, context)
        after = self.counts[context]
        if not after:
            return 1 / VOCAB
        total = after.total() + self.alpha * VOCAB
        return (after[word] + self.alpha) / total

    def interpolated(self, word, context):
        below = 1 / VOCAB
        if context:
            below = self.interpolated(word, context[1:])
        after = self.counts[context]
        if not after:
            return below
        weight = self.lambdas[len(context)]
        return weight * after[word] / after.total() + (1 - weight) * below


@pytest.mark.parametrize("order", [1, 2, 4])
@cases("models/cases.toml", "smoothing", "fields")
def test_other_smoothing_equals_the_reference(fields, order, monkeypatch):
    # The weights are given, so that only the smoothing is compared.
    fields = fields | {"order": order}
    lambdas = [0.3, 0.6, 0.8, 0.4][:order]

    def estimate(frequencies, *_):
        every_tenth = sum(len(sentence) - 1 for sentence in TRAIN[::10])
        assert frequencies.shape[1] == every_tenth
        return lambdas

    monkeypatch.setattr("lmzoo.models.count.estimate_weights", estimate)
    model = fitted(TRAIN, **fields)
    reference = Smoothed(TRAIN, fields, lambdas)
    scores = model.log_prob(*pad_sentences(OTHER, LENGTH)).exp().tolist()
    for sentence, actual in zip(OTHER, scores, strict=True):
        history = sentence[:-1]
        expected = []
        for t in range(1, len(sentence)):
            expected.append(reference.probability(sentence[t], sentence[:t]))
        assert actual[1 : len(sentence)] == pytest.approx(expected, rel=1e-5)
        dense = model.next_log_prob(torch.tensor([history]))[0].exp()
        after = [reference.probability(word, history) for word in range(VOCAB)]
        assert dense.tolist() == pytest.approx(after, rel=1e-5)


def test_jelinek_mercer_weights_maximise_the_held_out_likelihood():
    """No pair of weights on a grid gives the held-out tokens a higher likelihood."""
    frequency = torch.tensor([[0.3, 0.0, 0.0, 0.2, 0.1], [0.01, 0.5, 0.0, 0.0, 0.02]]).double()
    known = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 1, 1]]).double()

    def likelihood(low, high):
        unigram = low * known[0]
        below = unigram * frequency[0] + (1 - unigram) / 20
        bigram = high * known[1]
        probability = bigram * frequency[1] + (1 - bigram) * below
        return probability.log().sum().item()

    low, high = estimate_weights(frequency, known, 20, rounds=500)
    best = likelihood(low, high)
    grid = [i / 40 for i in range(1, 40)]
    for a, b in itertools.product(grid, grid):
        assert best >= likelihood(a, b) - 1e-6


def test_an_unfitted_model_is_uniform():
    model = zoo.build(zoo.config("ngram_count"), Task(vocab=VOCAB, length=LENGTH))
    assert nll(model, OTHER) == pytest.approx(math.log(VOCAB))


def test_a_second_fit_replaces_the_first():
    model = fitted(OTHER)
    model.fit_closed_form(*pad_sentences(TRAIN, LENGTH))
    assert nll(model, OTHER) == nll(fitted(TRAIN), OTHER)
