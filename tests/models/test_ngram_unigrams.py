"""Mixtures that contain a unigram (DLM7, 8, 9)."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.functional.token_scores import scored_mask
from tests.laws.support import assert_close, log_prob, loss
from tests.models.equivalence import (
    ALWAYS,
    NEVER,
    assert_same_model,
    copy_weights,
    set_weights,
    small,
)
from tests.tiny import CLOSE, batch, every_sequence, quick


def entropy(tokens: Tensor, lengths: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """Return the empirical unigram of the scored tokens and its entropy in nats."""
    counts = torch.bincount(tokens[scored_mask(tokens, lengths)], minlength=vocab) + 0.0
    share = counts / counts.sum()
    return share, -torch.xlogy(share, share).sum()


def test_all_weight_on_the_bigram_is_the_log_bilinear_bigram() -> None:
    mixed, plain = small("interpolated_bigram"), small("ngram_log_bilinear", window=1)
    copy_weights(mixed, plain, "embedding.weight", "transition.weight", "transition.bias")
    set_weights(mixed, {"weights.logits": torch.tensor([NEVER, ALWAYS])})
    assert_same_model(mixed, plain)


def test_tied_unigram_is_the_bigram_after_the_pad_vector() -> None:
    model = small("interpolated_bigram")
    set_weights(model, {"weights.logits": torch.tensor([ALWAYS, NEVER])})
    table = model.embedding.weight
    unigram = torch.log_softmax(model.transition(torch.ones(4)) @ table.T, dim=-1).detach()
    tokens, lengths = every_sequence(model.task)
    assert_close(log_prob(model, tokens, lengths)[:, 1:], unigram[tokens[:, 1:]], CLOSE, "unigram")


def test_uniform_weights_are_the_mean_of_unigram_and_bigram() -> None:
    model = small("interpolated_bigram", weights="uniform")
    tokens, lengths = every_sequence(model.task)
    parts = []
    for logits in ([ALWAYS, NEVER], [NEVER, ALWAYS]):
        part = small("interpolated_bigram")
        copy_weights(part, model, "embedding.weight", "transition.weight", "transition.bias")
        set_weights(part, {"weights.logits": torch.tensor(logits)})
        parts.append(log_prob(part, tokens, lengths)[:, 1:].exp())
    expected = (parts[0] + parts[1]) / 2
    assert_close(log_prob(model, tokens, lengths)[:, 1:].exp(), expected, CLOSE, "half of each")


def test_free_unigram_is_optimal_at_the_empirical_unigram() -> None:
    model = small("interpolated_bigram", unigram="free")
    tokens, lengths = batch(model.task, count=40)
    share, floor = entropy(tokens, lengths, model.task.vocab)
    set_weights(model, {"weights.logits": torch.tensor([ALWAYS, NEVER]), "free": share.log()})
    actual = loss(model, tokens, lengths)
    actual.backward()
    assert_close(actual.detach(), floor, CLOSE, "nats per token")
    slope = model.get_parameter("free").grad
    assert slope is not None
    assert_close(slope, torch.zeros_like(slope), CLOSE, "slope at the optimum")


def test_one_transition_is_the_interpolated_bigram() -> None:
    multi, single = (small("multi_transition_bigram", components=1), small("interpolated_bigram"))
    names = ("embedding.weight", "transition.weight", "transition.bias", "weights.logits")
    copy_weights(multi, single, *names)
    assert_same_model(multi, single)


def test_each_transition_is_a_log_bilinear_bigram() -> None:
    multi, plain = (
        small("multi_transition_bigram", components=3),
        small("ngram_log_bilinear", window=1),
    )
    copy_weights(plain, multi, "embedding.weight")
    for k in range(3):
        chosen = torch.full((4,), NEVER).scatter(0, torch.tensor(k + 1), ALWAYS)
        set_weights(multi, {"weights.logits": chosen})
        set_weights(plain, {"transition.weight": multi.transition.weight.chunk(3)[k]})
        set_weights(plain, {"transition.bias": multi.transition.bias.chunk(3)[k]})
        assert_same_model(multi, plain)


def test_unigram_uses_the_first_transition() -> None:
    multi, single = (small("multi_transition_bigram", components=3), small("interpolated_bigram"))
    copy_weights(single, multi, "embedding.weight")
    set_weights(single, {"transition.weight": multi.transition.weight.chunk(3)[0]})
    set_weights(single, {"transition.bias": multi.transition.bias.chunk(3)[0]})
    set_weights(single, {"weights.logits": torch.tensor([ALWAYS, NEVER])})
    set_weights(multi, {"weights.logits": torch.tensor([ALWAYS, NEVER, NEVER, NEVER])})
    assert_same_model(multi, single)


@quick
@given(st.integers(1, 6), st.integers(0, 99))
def test_unigram_mixture_is_not_better_than_the_empirical_unigram(
    components: int, seed: int
) -> None:
    """The probability of a token does not depend on its context."""
    model = small("unigram_mixture", components=components)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=2)
    tokens, lengths = batch(model.task, count=30, seed=seed)
    lengths = torch.full_like(lengths, model.task.length)
    scores = log_prob(model, tokens, lengths)[:, 1:]
    for v in range(model.task.vocab):
        same_word = scores[tokens[:, 1:] == v]
        assert_close(same_word, same_word[:1].expand_as(same_word), CLOSE, f"log P({v})")
    _, floor = entropy(tokens, lengths, model.task.vocab)
    assert -scores.mean() >= floor - CLOSE


def test_components_of_the_unigram_mixture_differ() -> None:
    """In the S0 code all components are equal."""
    model = small("unigram_mixture", components=3)
    words = model.words.log_prob_table(model.embedding.weight)
    assert (words[:, None] - words).abs().amax(-1).add(torch.eye(3)).min() > 1e-2
