"""Mixtures with a unigram in them, or of nothing else (DLM7, 8, 9)."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.contract import scored_mask
from tests.laws.support import assert_close, log_prob, loss
from tests.models.limits import ALWAYS, NEVER, copied, put, row, same_model
from tests.tiny import CLOSE, batch, every_sequence, quick


def entropy(tokens: Tensor, lengths: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """The empirical unigram of the scored tokens, and its entropy in nats."""
    counts = torch.bincount(tokens[scored_mask(tokens, lengths)], minlength=vocab) + 0.0
    share = counts / counts.sum()
    return share, -torch.xlogy(share, share).sum()


def test_all_weight_on_the_bigram_is_the_log_bilinear_bigram() -> None:
    mixed, plain = row("interpolated_bigram"), row("ngram_log_bilinear", window=1)
    copied(mixed, plain, "embedding.weight", "transition.weight", "transition.bias")
    put(mixed, {"weights.logits": torch.tensor([NEVER, ALWAYS])})
    same_model(mixed, plain)


def test_the_tied_unigram_is_the_bigram_after_the_pad() -> None:
    model = row("interpolated_bigram")
    put(model, {"weights.logits": torch.tensor([ALWAYS, NEVER])})
    table = model.embedding.weight
    unigram = torch.log_softmax(model.transition(torch.ones(4)) @ table.T, dim=-1).detach()
    tokens, lengths = every_sequence(model.task)
    assert_close(log_prob(model, tokens, lengths)[:, 1:], unigram[tokens[:, 1:]], CLOSE, "unigram")


def test_even_weights_are_the_mean_of_unigram_and_bigram() -> None:
    model = row("interpolated_bigram", weights="uniform")
    tokens, lengths = every_sequence(model.task)
    parts = []
    for logits in ([ALWAYS, NEVER], [NEVER, ALWAYS]):
        part = row("interpolated_bigram")
        copied(part, model, "embedding.weight", "transition.weight", "transition.bias")
        put(part, {"weights.logits": torch.tensor(logits)})
        parts.append(log_prob(part, tokens, lengths)[:, 1:].exp())
    expected = (parts[0] + parts[1]) / 2
    assert_close(log_prob(model, tokens, lengths)[:, 1:].exp(), expected, CLOSE, "half of each")


def test_a_free_unigram_is_best_where_it_is_the_empirical_one() -> None:
    model = row("interpolated_bigram", unigram="free")
    tokens, lengths = batch(model.task, count=40)
    share, floor = entropy(tokens, lengths, model.task.vocab)
    put(model, {"weights.logits": torch.tensor([ALWAYS, NEVER]), "free": share.log()})
    found = loss(model, tokens, lengths)
    found.backward()
    assert_close(found.detach(), floor, CLOSE, "nats per token")
    slope = model.get_parameter("free").grad
    assert slope is not None
    assert_close(slope, torch.zeros_like(slope), CLOSE, "slope at the optimum")


def test_one_transition_is_the_interpolated_bigram() -> None:
    many, one = row("multi_transition_bigram", components=1), row("interpolated_bigram")
    names = ("embedding.weight", "transition.weight", "transition.bias", "weights.logits")
    copied(many, one, *names)
    same_model(many, one)


def test_each_transition_is_a_log_bilinear_bigram() -> None:
    many, plain = (
        row("multi_transition_bigram", components=3),
        row("ngram_log_bilinear", window=1),
    )
    copied(plain, many, "embedding.weight")
    for k in range(3):
        chosen = torch.full((4,), NEVER).scatter(0, torch.tensor(k + 1), ALWAYS)
        put(many, {"weights.logits": chosen})
        put(plain, {"transition.weight": many.transition.weight.chunk(3)[k]})
        put(plain, {"transition.bias": many.transition.bias.chunk(3)[k]})
        same_model(many, plain)


def test_the_unigram_of_many_transitions_is_the_first_ones() -> None:
    many, one = row("multi_transition_bigram", components=3), row("interpolated_bigram")
    copied(one, many, "embedding.weight")
    put(one, {"transition.weight": many.transition.weight.chunk(3)[0]})
    put(one, {"transition.bias": many.transition.bias.chunk(3)[0]})
    put(one, {"weights.logits": torch.tensor([ALWAYS, NEVER])})
    put(many, {"weights.logits": torch.tensor([ALWAYS, NEVER, NEVER, NEVER])})
    same_model(many, one)


@quick
@given(st.integers(1, 6), st.integers(0, 99))
def test_no_mixture_of_unigrams_beats_the_empirical_unigram(components: int, seed: int) -> None:
    """Nor does it look at the context: one token has one probability."""
    model = row("unigram_mixture", components=components)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=2)
    tokens, lengths = batch(model.task, count=30, seed=seed)
    lengths = torch.full_like(lengths, model.task.length)
    scores = log_prob(model, tokens, lengths)[:, 1:]
    for v in range(model.task.vocab):
        told = scores[tokens[:, 1:] == v]
        assert_close(told, told[:1].expand_as(told), CLOSE, f"log P({v})")
    _, floor = entropy(tokens, lengths, model.task.vocab)
    assert -scores.mean() >= floor - CLOSE


def test_components_of_the_unigram_mixture_differ() -> None:
    """The published code made them all alike."""
    model = row("unigram_mixture", components=3)
    words = model.words.word_table(model.embedding.weight)
    assert (words[:, None] - words).abs().amax(-1).add(torch.eye(3)).min() > 1e-2
