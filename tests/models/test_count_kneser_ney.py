"""Modified Kneser-Ney equals a reference implementation and manual calculations."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo import zoo
from lmzoo.contract import END, START, Task
from lmzoo.models.count.smoothing import FALLBACK, discounts
from tests.models.reference_kneser_ney import ReferenceKneserNey
from tests.models.sentences import pad_sentences, random_sentences
from tests.tiny import quick

A, B, C = 4, 5, 6


def fitted(sentences, order, vocab, length):
    model = zoo.build(zoo.config("ngram_count", order=order), Task(vocab=vocab, length=length))
    model.fit_closed_form(*pad_sentences(sentences, length))
    return model


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_equal_the_reference_implementation(order):
    """The corpus is large enough to estimate the discounts of orders 2 and above."""
    vocab, length = 18, 9
    train, held_out = (
        random_sentences(300, vocab, length, seed=0),
        random_sentences(8, vocab, length, seed=1),
    )
    model, reference = fitted(train, order, vocab, length), ReferenceKneserNey(train, order, vocab)
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
def test_random_small_corpora_equal_the_reference_implementation(sentences, prefix, order):
    """Corpora too small for discounts, with `<start>` and `<end>` at any position."""
    train = [(START, *s) for s in sentences]
    model, reference = fitted(train, order, 5, 6), ReferenceKneserNey(train, order, 5)
    dense = model.next_log_prob(torch.tensor([[START, *prefix]]))[0].double().exp()
    assert dense.sum().item() == pytest.approx(1, abs=1e-6)
    expected = [reference.probability(v, (START, *prefix)) for v in range(5)]
    assert dense.tolist() == pytest.approx(expected, rel=1e-5)


def test_bigram_probabilities_equal_a_manual_calculation():
    """Sentences: a b | a b | a c, each with `<end>`; V = 7.

    Bigrams: <s>a 3, ab 2, ac 1, b</s> 2, c</s> 1.  n_1 = 2, n_2 = 2, n_3 = 1, n_4 = 0:
    Y = 2/6, D_1 = 1 − 2·⅓·1 = ⅓, D_2 = 2 − 3·⅓·½ = 1½, D_3 = 3 − 0 = 3.
    Before a: <s>. Before b: a. Before c: a. Before </s>: b, c. Continuations 1, 1, 1, 2
    of 5; n_3 = 0, so D = ½, 1, 1½ and γ = (½+½+½+1)/5 = ½:
    P(b) = ½/5 + ½/7 = 6/35.     P(</s>) = 1/5 + ½/7 = 19/70.
    P(b | a) = (2 − 1½)/3 + (1½ + ⅓)/3 · 6/35 = 1/6 + 11/105 = 57/210.
    """
    train = [(START, A, B, END), (START, A, B, END), (START, A, C, END)]
    model = fitted(train, 2, 7, 4)
    after_a = model.next_log_prob(torch.tensor([[START, A]]))[0]
    assert math.exp(after_a[B]) == pytest.approx(57 / 210)
    unseen = model.next_log_prob(torch.tensor([[START, END]]))[0]
    assert math.exp(unseen[B]) == pytest.approx(6 / 35)
    assert math.exp(unseen[END]) == pytest.approx(19 / 70)


def test_discounts_out_of_range_fall_back_to_constants():
    """With 4 ones, 2 twos and 30 threes, D_2 = 2 − 3·½·(30/2) < 0."""
    counts = torch.tensor([1] * 4 + [2] * 2 + [3] * 30 + [4])
    assert discounts(counts) == FALLBACK


def test_a_discount_of_zero_falls_back_to_constants():
    """With 16 ones, 8 twos, 2 threes and 3 fours, Y = ½ and D_3 = 3 − 4·½·3/2 = 0."""
    counts = torch.tensor([1] * 16 + [2] * 8 + [3] * 2 + [4] * 3)
    assert discounts(counts) == FALLBACK


def test_words_with_many_contexts_are_more_probable_than_words_with_one():
    """C is as frequent as B but follows A only, so its continuation count is lower."""
    train = [(START, A, C, END)] * 6 + [(START, v, B, END) for v in (4, 5, 6, 7, 8, 9)]
    model = fitted(train, 2, 12, 4)
    unseen = model.next_log_prob(torch.tensor([[START, 11]]))[0]
    assert unseen[B] > unseen[C]
