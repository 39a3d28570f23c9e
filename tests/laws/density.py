"""A normalised causal density: what only an EXACT score claims."""

import itertools

import torch

from lmzoo.contract import LanguageModel
from tests.laws.ask import log_prob, next_log_prob, repeatable, same
from tests.tiny import CLOSE, SAME, batch, every_sequence


def law_sums_to_one(model: LanguageModel) -> None:
    """The probabilities of all sequences sum to one."""
    total = log_prob(model, *every_sequence(model.task)).double().sum(1).exp().sum()
    same(total, torch.ones_like(total), CLOSE, "total probability of all sequences")


def law_causal(model: LanguageModel) -> None:
    """No position depends on a later token (the scores) or on itself (Σ_v P(v) = 1)."""
    tokens, lengths = batch(model.task)
    lengths = torch.full_like(lengths, model.task.length)
    for training, u in itertools.product((False, True), range(1, model.task.length)):
        before = log_prob(model, tokens, lengths, training=training)[:, :u]
        total = torch.zeros(len(tokens))
        for v in range(model.task.vocab):
            changed = tokens.clone()
            changed[:, u] = v
            after = log_prob(model, changed, lengths, training=training)
            same(after[:, :u], before, SAME, f"scores before token {u}, which was changed")
            total += after[:, u].exp()
        same(total, torch.ones_like(total), CLOSE, f"probability of all tokens at {u}")


def law_next_is_a_distribution(model: LanguageModel) -> None:
    """`next_log_prob` has shape (B, V), sums to one and looks at its own row only."""
    tokens, _ = batch(model.task)
    for t in range(1, model.task.length):
        dense = next_log_prob(model, tokens[:, :t])
        assert dense.shape == (len(tokens), model.task.vocab), f"next_log_prob: {dense.shape}"
        total = dense.exp().sum(1)
        same(total, torch.ones_like(total), CLOSE, f"next_log_prob after {t} tokens")
        same(next_log_prob(model, tokens[:1, :t]), dense[:1], CLOSE, "next_log_prob of a row alone")


def law_scores_agree(model: LanguageModel) -> None:
    """`log_prob` is `next_log_prob` at the token, at every position of every sequence."""
    tokens, lengths = every_sequence(model.task)
    scores = log_prob(model, tokens, lengths)
    for t in range(1, model.task.length):
        dense = next_log_prob(model, tokens[:, :t])
        same(dense.gather(1, tokens[:, t : t + 1])[:, 0], scores[:, t], CLOSE, f"score at {t}")


def law_answers_twice_alike(model: LanguageModel) -> None:
    """In evaluation a density is a number, not a draw."""
    assert repeatable(model), "two evaluations of one batch differ"
