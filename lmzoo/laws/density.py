"""Laws of an EXACT score: a normalised causal density."""

import itertools

import torch

from lmzoo.contract import LanguageModel
from lmzoo.laws.support import assert_close, is_deterministic, log_prob, next_log_prob
from lmzoo.laws.tiny import CLOSE, SAME, batch, every_sequence


def law_sums_to_one(model: LanguageModel) -> None:
    """The probabilities of all sequences sum to one."""
    total = log_prob(model, *every_sequence(model.task)).double().sum(1).exp().sum()
    assert_close(total, torch.ones_like(total), CLOSE, "total probability of all sequences")


def law_causal(model: LanguageModel) -> None:
    """No score depends on a later token, and Σ_v P(v) = 1 at every position."""
    tokens, lengths = batch(model.task)
    lengths = torch.full_like(lengths, model.task.length)
    for training, u in itertools.product((False, True), range(1, model.task.length)):
        before = log_prob(model, tokens, lengths, training=training)[:, :u]
        total = torch.zeros(len(tokens))
        for v in range(model.task.vocab):
            changed = tokens.clone()
            changed[:, u] = v
            after = log_prob(model, changed, lengths, training=training)
            assert_close(after[:, :u], before, SAME, f"scores before token {u}, which was changed")
            total += after[:, u].exp()
        assert_close(total, torch.ones_like(total), CLOSE, f"probability of all tokens at {u}")


def law_next_is_a_distribution(model: LanguageModel) -> None:
    """`next_log_prob` is (B, V), sums to one, and depends on its own row only."""
    tokens, _ = batch(model.task)
    for t in range(1, model.task.length):
        dense = next_log_prob(model, tokens[:, :t])
        assert dense.shape == (len(tokens), model.task.vocab), f"next_log_prob: {dense.shape}"
        total = dense.exp().sum(1)
        assert_close(total, torch.ones_like(total), CLOSE, f"next_log_prob after {t} tokens")
        alone = next_log_prob(model, tokens[:1, :t])
        assert_close(alone, dense[:1], CLOSE, "next_log_prob of a batch of one sequence")


def law_log_prob_equals_next_log_prob(model: LanguageModel) -> None:
    """`log_prob` is `next_log_prob` of the actual token, at every position of every sequence."""
    tokens, lengths = every_sequence(model.task)
    scores = log_prob(model, tokens, lengths)
    for t in range(1, model.task.length):
        dense = next_log_prob(model, tokens[:, :t])
        chosen = dense.gather(1, tokens[:, t : t + 1])[:, 0]
        assert_close(chosen, scores[:, t], CLOSE, f"score at {t}")


def law_scores_are_deterministic(model: LanguageModel) -> None:
    """In evaluation mode the scores are not random."""
    assert is_deterministic(model), "two evaluations of one batch differ"
