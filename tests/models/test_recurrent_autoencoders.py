"""Recurrent autoencoders: recurrent models whose initial state is the code of the sentence."""

import pytest
import torch

from lmzoo.contract import LanguageModel
from tests.laws.support import assert_close, log_prob
from tests.models.equivalence import copy_weights, set_weights, small
from tests.models.test_vae_limits import decoder_of
from tests.tiny import CLOSE, batch, every_sequence

NAMES = ["gru_autoencoder", "rnn_autoencoder"]


def zero_encoder(model: LanguageModel) -> None:
    """Set all weights of the encoder to 0."""
    weights = dict(model.encoder.named_parameters(prefix="encoder"))
    set_weights(model, dict.fromkeys(weights, 0.0))


@pytest.mark.parametrize(
    ("name", "cell", "start"), [("rnn_autoencoder", "rnn", 0.0), ("gru_autoencoder", "gru", 0.5**5)]
)
def test_zero_encoder_weights_give_the_plain_recurrent_model(
    name: str, cell: str, start: float
) -> None:
    """With zero weights a tanh RNN outputs 0 and a GRU halves its state of ones at each token."""
    model, plain = small(name), small("recurrent_lm", cell=cell, starts=1)
    zero_encoder(model)
    copy_weights(plain, model, *decoder_of(model))
    set_weights(plain, {"starts.vectors": start})
    tokens, lengths = every_sequence(model.task)
    actual, expected = log_prob(model, tokens, lengths), log_prob(plain, tokens, lengths)
    assert_close(actual, expected, CLOSE, "scores")


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_code_depends_on_all_tokens_and_not_on_pads(name: str) -> None:
    model = small(name)
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length - 1)
    code = model.encode(tokens, lengths)
    assert code.shape == (len(tokens), model.config.width)
    for t in range(model.task.length):
        changed = tokens.clone()
        changed[:, t] = (tokens[:, t] + 1) % model.task.vocab
        moved = (model.encode(changed, lengths) - code).abs().amax(1)
        assert (moved > 1e-4).all() if t < model.task.length - 1 else (moved == 0).all()
