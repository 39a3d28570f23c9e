"""A sequence's scores are its own: neither padding nor batch-mates touch them."""

import itertools

import torch

from lmzoo.contract import LanguageModel
from tests.laws.ask import log_prob, repeatable, same
from tests.tiny import CLOSE, SAME, batch


def law_scores_have_shape(model: LanguageModel) -> None:
    """(B, T), finite where 1 <= t < length and exactly 0 elsewhere."""
    tokens, lengths = batch(model.task)
    scores = log_prob(model, tokens, lengths)
    assert scores.shape == tokens.shape, f"log_prob: {scores.shape}, tokens: {tokens.shape}"
    t = torch.arange(model.task.length)
    scored = (t >= 1) & (t < lengths[:, None])
    assert (scores[~scored] == 0).all(), "an unscored position has a score"
    assert scores[scored].isfinite().all(), "a score is not finite"
    assert (scores[scored] != 0).any(), "nothing is scored"


def law_padding_is_ignored(model: LanguageModel) -> None:
    """Neither what stands beyond a sequence's length nor how much of it changes its scores."""
    tokens, lengths = batch(model.task)
    beyond = torch.arange(model.task.length) >= lengths[:, None]
    for training, filler in itertools.product((False, True), range(model.task.vocab)):
        before = log_prob(model, tokens, lengths, training=training)
        filled = tokens.masked_fill(beyond, filler)
        after = log_prob(model, filled, lengths, training=training)
        same(after, before, SAME, f"scores after padding with {filler}")
    if repeatable(model):
        before = log_prob(model, tokens, lengths)
        for width in range(2, model.task.length):
            fits = lengths <= width
            after = log_prob(model, tokens[fits, :width], lengths[fits])
            same(after, before[fits, :width], CLOSE, f"scores when trimmed to {width}")


def law_rows_are_independent(model: LanguageModel) -> None:
    """Other batch-mates, another order and no mates at all change nothing."""
    tokens, lengths = batch(model.task)
    mates, mate_lengths = batch(model.task, seed=1)
    mates[0], mate_lengths[0] = tokens[0], lengths[0]
    for training in (False, True):
        before = log_prob(model, tokens, lengths, training=training)[0]
        after = log_prob(model, mates, mate_lengths, training=training)[0]
        same(after, before, SAME, "scores beside other batch-mates")
    if repeatable(model):
        before = log_prob(model, tokens, lengths)
        order = torch.arange(len(tokens)).roll(2)
        after = log_prob(model, tokens[order], lengths[order])
        same(after, before[order], CLOSE, "scores in another order")
        same(log_prob(model, tokens[:1], lengths[:1]), before[:1], CLOSE, "scores of a row alone")


def law_posterior_is_a_distribution(model: LanguageModel) -> None:
    """Where there is a discrete latent, its posterior sums to one over it."""
    if not model.latent:
        return
    model.eval()
    tokens, lengths = batch(model.task)
    posterior = model.posterior(tokens, lengths).detach()
    shape = (len(tokens), posterior.shape[1], model.task.length - 1)
    assert posterior.shape == shape, f"posterior: {posterior.shape}, not {shape}"
    assert (posterior >= 0).all(), "a posterior probability is negative"
    total = posterior.sum(1)[lengths == model.task.length]
    same(total, torch.ones_like(total), CLOSE, f"posterior over {model.latent}")
