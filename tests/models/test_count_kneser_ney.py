"""Modified Kneser-Ney against the paper's formulas, by dictionary and by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo import zoo
from lmzoo.contract import END, START, Task
from lmzoo.models.count.smoothing import FALLBACK, discounts
from tests.models.sentences import padded, skewed
from tests.models.slow_kneser_ney import SlowKneserNey
from tests.tiny import quick

A, B, C = 4, 5, 6


def fitted(sentences, order, vocab, length):
    model = zoo.build(zoo.config("ngram_count", order=order), Task(vocab=vocab, length=length))
    model.fit_closed_form(*padded(sentences, length))
    return model


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_every_probability_is_the_papers(order):
    """Fourteen word types, three hundred sentences: discounts are estimated above order 1."""
    vocab, length = 18, 9
    train, other = skewed(300, vocab, length, seed=0), skewed(8, vocab, length, seed=1)
    model, slow = fitted(train, order, vocab, length), SlowKneserNey(train, order, vocab)
    assert all(slow.discounts[n] != FALLBACK for n in range(2, order + 1))
    tokens, lengths = padded(other, length)
    scores = model.log_prob(tokens, lengths).exp()
    for sentence, found in zip(other, scores.tolist(), strict=True):
        for t in range(1, len(sentence)):
            expected = slow.probability(sentence[t], sentence[:t])
            assert found[t] == pytest.approx(expected, rel=1e-5)


@quick
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), min_size=1, max_size=6),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_a_few_sentences_of_any_tokens(sentences, prefix, order):
    """Too few for discounts, `<start>` and `<end>` anywhere: the same, and sums to one."""
    train = [(START, *s) for s in sentences]
    model, slow = fitted(train, order, 5, 6), SlowKneserNey(train, order, 5)
    dense = model.next_log_prob(torch.tensor([[START, *prefix]]))[0].double().exp()
    assert dense.sum().item() == pytest.approx(1, abs=1e-6)
    expected = [slow.probability(v, (START, *prefix)) for v in range(5)]
    assert dense.tolist() == pytest.approx(expected, rel=1e-5)


def test_a_bigram_worked_by_hand():
    """Sentences: a b | a b | a c, each with an end; V = 7.

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


def test_discounts_out_of_bounds_are_not_used():
    """Few ones and many threes would give D_2 = 2 − 3·½·(30/2) < 0."""
    counts = torch.tensor([1] * 4 + [2] * 2 + [3] * 30 + [4])
    assert discounts(counts) == FALLBACK


def test_words_that_follow_many_contexts_outrank_frequent_words_of_one():
    """The point of continuation counts: C is as frequent as B, but only ever follows A."""
    train = [(START, A, C, END)] * 6 + [(START, v, B, END) for v in (4, 5, 6, 7, 8, 9)]
    model = fitted(train, 2, 12, 4)
    unseen = model.next_log_prob(torch.tensor([[START, 11]]))[0]
    assert unseen[B] > unseen[C]
