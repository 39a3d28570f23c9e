"""The scores of a sequence depend on no padding and no other sequence of the batch."""

import torch

from lmzoo.contract import LanguageModel
from lmzoo.laws.probes import obey
from lmzoo.laws.support import assert_close, log_prob
from lmzoo.laws.tiny import CLOSE, batch


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
    obey(model, "pads")


def law_rows_are_independent(model: LanguageModel) -> None:
    """Neither the other sequences of a batch nor their order nor their number change the scores."""
    obey(model, "mates")


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
