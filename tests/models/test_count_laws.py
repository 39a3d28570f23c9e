"""Properties of count-based n-grams with every smoothing rule."""

import math
import random
from collections import Counter
from itertools import pairwise

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import START, Task
from lmzoo.models.count.smoothing import Smoothing, estimate_weights
from tests.models.sentences import pad_sentences, random_sentences

VOCAB, LENGTH = 14, 8
TRAIN = random_sentences(120, VOCAB, LENGTH, seed=0)
OTHER = random_sentences(40, VOCAB, LENGTH, seed=1)


def fitted(sentences=TRAIN, vocab=VOCAB, length=LENGTH, **fields):
    model = zoo.build(zoo.config("ngram_count", **fields), Task(vocab=vocab, length=length))
    model.fit_closed_form(*pad_sentences(sentences, length))
    return model


def nll(model, sentences):
    """Return nats per scored token."""
    tokens, lengths = pad_sentences(sentences, model.task.length)
    return -(model.log_prob(tokens, lengths).double().sum() / (lengths - 1).sum()).item()


def test_training_loss_does_not_increase_with_the_order():
    losses = [nll(fitted(order=m, smoothing="none"), TRAIN) for m in range(1, LENGTH + 1)]
    assert all(a >= b - 1e-6 for a, b in pairwise(losses))
    assert losses[0] > losses[-1] + 0.1


def test_bigram_training_loss_is_the_conditional_entropy():
    pairs = Counter((s[t - 1], s[t]) for s in TRAIN for t in range(1, len(s)))
    firsts = Counter(s[t - 1] for s in TRAIN for t in range(1, len(s)))
    entropy = -sum(c * math.log(c / firsts[pair[0]]) for pair, c in pairs.items())
    actual = nll(fitted(order=2, smoothing="none"), TRAIN)
    assert actual == pytest.approx(entropy / sum(pairs.values()), rel=1e-6)


@pytest.mark.parametrize("smoothing", list(Smoothing))
def test_unigram_does_not_depend_on_token_order(smoothing):
    shuffled = [(s[0], *random.Random(0).sample(s[1:], len(s) - 1)) for s in TRAIN[:20]]
    model, other = (fitted(x, order=1, smoothing=smoothing) for x in (TRAIN[:20], shuffled))
    tokens, lengths = pad_sentences(OTHER, LENGTH)
    assert torch.equal(model.log_prob(tokens, lengths), other.log_prob(tokens, lengths))


@pytest.mark.parametrize("smoothing", list(Smoothing))
@pytest.mark.parametrize("order", [1, 2, 4])
def test_next_token_distributions_sum_to_one_and_equal_token_scores(smoothing, order):
    model = fitted(order=order, smoothing=smoothing)
    tokens, lengths = pad_sentences(OTHER, LENGTH)
    scores = model.log_prob(tokens, lengths)
    for t in range(1, LENGTH):
        dense = model.next_log_prob(tokens[:, :t])
        total = dense.double().exp().sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total), atol=1e-5, rtol=0)
        here = lengths > t
        expected = dense.gather(1, tokens[:, t : t + 1])[here, 0]
        torch.testing.assert_close(scores[here, t], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("smoothing", list(Smoothing))
def test_model_of_order_m_reads_the_last_m_minus_one_tokens(smoothing):
    model = fitted(order=3, smoothing=smoothing)
    prefix = torch.tensor([TRAIN[0][:2] + s[1:3] for s in TRAIN if len(s) > 4])
    changed = prefix.clone()
    changed[:, 1] = 4 + (changed[:, 1] - 3) % 9
    assert torch.equal(model.next_log_prob(prefix), model.next_log_prob(changed))
    changed[:, 2] = 4 + (changed[:, 2] - 3) % 9
    assert not torch.equal(model.next_log_prob(prefix), model.next_log_prob(changed))


def test_add_alpha_equals_a_manual_calculation():
    """After A: B twice, C once; α = ½ over V = 7."""
    model = fitted(
        [(1, 4, 5, 2)] * 2 + [(1, 4, 6, 2)], 7, 4, order=2, smoothing="add_alpha", alpha=0.5
    )
    dense = model.next_log_prob(torch.tensor([[START, 4], [START, 3]])).exp()
    assert dense[0, 5].item() == pytest.approx(2.5 / 6.5)
    assert dense[0, 3].item() == pytest.approx(0.5 / 6.5)
    torch.testing.assert_close(dense[1], torch.full((7,), 1 / 7))


def test_add_alpha_of_zero_is_no_smoothing():
    tokens, lengths = pad_sentences(OTHER, LENGTH)
    zero, none = fitted(smoothing="add_alpha", alpha=0.0), fitted(smoothing="none")
    assert torch.equal(zero.log_prob(tokens, lengths), none.log_prob(tokens, lengths))


def test_unseen_words_have_probability_only_with_smoothing():
    for smoothing in Smoothing:
        least = fitted(smoothing=smoothing).next_log_prob(torch.tensor([[START, 4]])).min()
        assert least.isfinite() == (smoothing is not Smoothing.NONE)


def test_interpolated_models_gain_from_longer_contexts_on_held_out_sentences():
    for smoothing in (Smoothing.KNESER_NEY, Smoothing.JELINEK_MERCER):
        assert nll(fitted(order=3, smoothing=smoothing), OTHER) < nll(
            fitted(order=1, smoothing=smoothing), OTHER
        )
    assert nll(fitted(order=3, smoothing="none"), OTHER) == math.inf


def test_unsmoothed_model_is_uniform_after_an_unseen_context():
    dense = fitted(order=2, smoothing="none").next_log_prob(torch.tensor([[START, 3]]))
    torch.testing.assert_close(dense.exp(), torch.full((1, VOCAB), 1 / VOCAB))


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


def test_unfitted_model_is_uniform():
    model = zoo.build(zoo.config("ngram_count"), Task(vocab=VOCAB, length=LENGTH))
    assert nll(model, OTHER) == pytest.approx(math.log(VOCAB))


def test_second_fit_replaces_the_first():
    model = fitted(OTHER)
    model.fit_closed_form(*pad_sentences(TRAIN, LENGTH))
    assert nll(model, OTHER) == nll(fitted(TRAIN), OTHER)


def test_pads_are_not_counted():
    words = Counter(v for s in TRAIN for v in s[1:])
    total = sum(words.values())
    entropy = -sum(c / total * math.log(c / total) for c in words.values())
    longer = fitted(length=LENGTH + 3, order=1, smoothing="none")
    assert nll(longer, TRAIN) == pytest.approx(entropy, rel=1e-6)
