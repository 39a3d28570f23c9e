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
from tests.cases import cases, parametrize, rows
from tests.models.reference_kneser_ney import ReferenceKneserNey
from tests.models.sentences import pad_sentences, random_sentences
from tests.tiny import quick

VOCAB = 14
LENGTH = 8
TRAIN = random_sentences(120, VOCAB, LENGTH, seed=0)
OTHER = random_sentences(40, VOCAB, LENGTH, seed=1)


def unfitted(vocab, length, **fields):
    config = zoo.config("ngram_count", **fields)
    task = Task(vocab=vocab, length=length)
    return zoo.build(config, task)


def fitted(sentences, vocab=VOCAB, length=LENGTH, **fields):
    model = unfitted(vocab, length, **fields)
    tokens, lengths = pad_sentences(sentences, length)
    model.fit_closed_form(tokens, lengths)
    return model


def nll(model, sentences):
    """Return nats per scored token."""
    tokens, lengths = pad_sentences(sentences, model.task.length)
    scores = model.log_prob(tokens, lengths).double()
    # `<start>` has no score.
    count = (lengths - 1).sum()
    mean = scores.sum() / count
    return -mean.item()


@parametrize("order", [1, 2, 3, 5])
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
    scores = model.log_prob(tokens, lengths).exp().tolist()
    for sentence, actual in zip(held_out, scores, strict=True):
        for t in range(1, len(sentence)):
            expected = reference.probability(sentence[t], sentence[:t])
            assert actual[t] == pytest.approx(expected, rel=1e-5)


SMALL_VOCAB = 5
TOKEN = st.integers(0, 4)
SENTENCES = st.lists(TOKEN, min_size=1, max_size=5)
CORPORA = st.lists(SENTENCES, min_size=1, max_size=6)
PREFIXES = st.lists(TOKEN, min_size=1, max_size=4)
ORDERS = st.integers(1, 4)


def distribution(model, history):
    """Return P(v | history) of a model."""
    prefix = torch.tensor([history])
    (log_p,) = model.next_log_prob(prefix)
    return log_p.double().exp().tolist()


@quick
@given(CORPORA, PREFIXES, ORDERS)
def test_kneser_ney_of_random_small_corpora_equals_the_reference(sentences, prefix, order):
    """Corpora too small for discounts, with `<start>` and `<end>` at any position."""
    train = [tuple([START] + sentence) for sentence in sentences]
    model = fitted(train, SMALL_VOCAB, 6, order=order)
    reference = ReferenceKneserNey(train, order, SMALL_VOCAB)
    history = tuple([START] + prefix)
    actual = distribution(model, history)
    words = range(SMALL_VOCAB)
    expected = [reference.probability(word, history) for word in words]
    assert sum(actual) == pytest.approx(1, abs=1e-6)
    assert actual == pytest.approx(expected, rel=1e-5)


def counted(*grams):
    """Return counts, given how many n-grams are seen once, twice, ..."""
    counts = torch.arange(1, len(grams) + 1)
    return counts.repeat_interleave(torch.tensor(grams))


def test_a_negative_discount_falls_back_to_constants():
    """D_2 = 2 − 3·½·(30/2) < 0."""
    counts = counted(4, 2, 30, 1)
    assert discounts(counts) == FALLBACK


def test_a_discount_of_zero_falls_back_to_constants():
    """Y = ½, D_3 = 3 − 4·½·3/2 = 0."""
    counts = counted(16, 8, 2, 3)
    assert discounts(counts) == FALLBACK


class Smoothed:
    """P(v | history) of a smoothing rule other than Kneser-Ney, from dictionaries."""

    def __init__(self, sentences, fields, lambdas):
        self.fields = fields
        self.order = fields["order"]
        self.alpha = fields.get("alpha", 0.0)
        self.lambdas = lambdas
        self.counts = defaultdict(Counter)
        for sentence in sentences:
            for t in range(1, len(sentence)):
                word = sentence[t]
                longest = min(self.order, t + 1)
                for size in range(longest):
                    context = sentence[t - size : t]
                    self.counts[context][word] += 1

    def probability(self, word, history):
        """Return P(word | history), the whole sentence so far."""
        length = len(history)
        first = max(0, length - self.order + 1)
        context = history[first:]
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
            shorter = context[1:]
            below = self.interpolated(word, shorter)
        after = self.counts[context]
        if not after:
            return below
        weight = self.lambdas[len(context)]
        share = after[word] / after.total()
        return weight * share + (1 - weight) * below


@parametrize("order", [1, 2, 4])
@cases("models/cases.toml", "smoothing", "fields")
def test_other_smoothing_equals_the_reference(fields, order, monkeypatch):
    # The weights are given, so that only the smoothing is compared.
    fields = fields | {"order": order}
    lambdas = [0.3, 0.6, 0.8, 0.4][:order]

    def estimate(frequencies, *_):
        held_out = TRAIN[::10]
        tokens = sum(len(sentence) - 1 for sentence in held_out)
        assert frequencies.shape[1] == tokens
        return lambdas

    monkeypatch.setattr("lmzoo.models.count.estimate_weights", estimate)
    model = fitted(TRAIN, **fields)
    reference = Smoothed(TRAIN, fields, lambdas)
    tokens, lengths = pad_sentences(OTHER, LENGTH)
    scores = model.log_prob(tokens, lengths).exp().tolist()
    for sentence, actual in zip(OTHER, scores, strict=True):
        for t in range(1, len(sentence)):
            expected = reference.probability(sentence[t], sentence[:t])
            assert actual[t] == pytest.approx(expected, rel=1e-5)
        history = sentence[:-1]
        words = range(VOCAB)
        after = [reference.probability(word, history) for word in words]
        following = distribution(model, history)
        assert following == pytest.approx(after, rel=1e-5)


def test_jelinek_mercer_weights_maximise_the_held_out_likelihood():
    """No pair of weights on a grid gives the held-out tokens a higher likelihood."""
    shares = rows("models/cases.toml", "frequency")
    frequency = torch.tensor(shares).double()
    known = torch.ones(2, 5).double()
    # One context of one token was not seen.
    known[1, 2] = 0

    def likelihood(low, high):
        unigram = low * known[0]
        below = unigram * frequency[0] + (1 - unigram) / 20
        bigram = high * known[1]
        seen = bigram * frequency[1]
        probability = seen + (1 - bigram) * below
        return probability.log().sum().item()

    low, high = estimate_weights(frequency, known, 20, rounds=500)
    best = likelihood(low, high)
    # With a weight of one, a token that was not seen has no probability.
    grid = [i / 40 for i in range(1, 40)]
    for a, b in itertools.product(grid, grid):
        assert best >= likelihood(a, b) - 1e-6


def test_an_unfitted_model_is_uniform():
    model = unfitted(VOCAB, LENGTH)
    expected = math.log(VOCAB)
    assert nll(model, OTHER) == pytest.approx(expected)


def test_a_second_fit_replaces_the_first():
    model = fitted(OTHER)
    tokens, lengths = pad_sentences(TRAIN, LENGTH)
    model.fit_closed_form(tokens, lengths)
    expected = nll(fitted(TRAIN), OTHER)
    assert nll(model, OTHER) == expected
