"""The latent autoregressive model: a recurrence with a skip (S4)."""

import torch

from tests.laws.support import assert_close, next_log_prob
from tests.models.limits import copied, put, row, same_model
from tests.tiny import CLOSE, every_sequence


def test_without_the_skip_it_is_the_recurrent_model() -> None:
    latent, plain = row("latent_ar"), row("rnn_lm")
    copied(latent, plain, *dict(plain.named_parameters()))
    put(latent, {"skip.weight": 0.0})
    same_model(latent, plain)


def test_the_skip_alone_is_the_log_bilinear_bigram() -> None:
    """A cell that says nothing: all of its weights zero, and so h."""
    latent, plain = row("latent_ar"), row("ngram_log_bilinear", window=1)
    put(latent, dict.fromkeys(dict(latent.cell.named_parameters(prefix="cell")), 0.0))
    copied(latent, plain, "embedding.weight", "transition.weight:skip.weight")
    put(plain, {"transition.bias": 0.0})
    same_model(latent, plain)


def test_the_skip_carries_the_last_token_only() -> None:
    model = row("latent_ar")
    prefix = every_sequence(model.task)[0][:, :4]
    x = model.embedding(prefix)
    h = model.cell.scan(x, torch.ones(len(x), 4))[:, -1]
    expected = torch.log_softmax(
        (h + x[:, -1] @ model.skip.weight.T) @ model.embedding.weight.T, dim=1
    )
    assert_close(next_log_prob(model, prefix), expected.detach(), CLOSE, "P(v | s_<t)")
