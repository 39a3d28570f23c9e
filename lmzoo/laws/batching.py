"""The scores of a sequence depend on no padding and no other sequence of the batch."""

import itertools

import torch

from lmzoo.contract import LanguageModel
from lmzoo.laws.support import assert_close, is_deterministic, log_prob
from lmzoo.laws.tiny import CLOSE, SAME, batch


def law_scores_have_shape(model: LanguageModel) -> None:
    """Scores are (B, T), finite where 1 <= t < length and exactly 0 elsewhere."""
    tokens, lengths = batch(model.task)
    scores = log_prob(model, tokens, lengths)
    assert scores.shape == tokens.shape, f"log_prob: {scores.shape}, tokens: {tokens.shape}"
    t = torch.arange(model.task.length)
    scored = (t >= 1) & (t < lengths[:, None])
    assert (scores[~scored] == 0).all(), "an unscored position has a score"
    assert scores[scored].isfinite().all(), "a score is not finite"
    assert (scores[scored] != 0).any(), "no position has a score"


def law_padding_is_ignored(model: LanguageModel) -> None:
    """Neither the content nor the amount of padding changes the scores."""
    tokens, lengths = batch(model.task)
    padding = torch.arange(model.task.length) >= lengths[:, None]
    for training, filler in itertools.product((False, True), range(model.task.vocab)):
        before = log_prob(model, tokens, lengths, training=training)
        filled = tokens.masked_fill(padding, filler)
        after = log_prob(model, filled, lengths, training=training)
        assert_close(after, before, SAME, f"scores after padding with {filler}")
    if is_deterministic(model):
        before = log_prob(model, tokens, lengths)
        for width in range(2, model.task.length):
            fits = lengths <= width
            after = log_prob(model, tokens[fits, :width], lengths[fits])
            assert_close(after, before[fits, :width], CLOSE, f"scores when trimmed to {width}")


def law_rows_are_independent(model: LanguageModel) -> None:
    """Neither the other sequences of a batch nor their order nor their number change the scores."""
    tokens, lengths = batch(model.task)
    others, other_lengths = batch(model.task, seed=1)
    others[0], other_lengths[0] = tokens[0], lengths[0]
    for training in (False, True):
        before = log_prob(model, tokens, lengths, training=training)[0]
        after = log_prob(model, others, other_lengths, training=training)[0]
        assert_close(after, before, SAME, "scores in a batch of other sequences")
    if is_deterministic(model):
        before = log_prob(model, tokens, lengths)
        order = torch.arange(len(tokens)).roll(2)
        after = log_prob(model, tokens[order], lengths[order])
        assert_close(after, before[order], CLOSE, "scores in another order")
        alone = log_prob(model, tokens[:1], lengths[:1])
        assert_close(alone, before[:1], CLOSE, "scores of a batch of one sequence")


def law_posterior_is_a_distribution(model: LanguageModel) -> None:
    """If the model has a discrete latent, its posterior sums to one over the latent's values."""
    if not model.latent:
        return
    model.eval()
    tokens, lengths = batch(model.task)
    posterior = model.posterior(tokens, lengths).detach()
    shape = (len(tokens), posterior.shape[1], model.task.length - 1)
    assert posterior.shape == shape, f"posterior: {posterior.shape}, not {shape}"
    assert (posterior >= 0).all(), "a posterior probability is negative"
    total = posterior.sum(1)[lengths == model.task.length]
    assert_close(total, torch.ones_like(total), CLOSE, f"posterior over {model.latent}")
