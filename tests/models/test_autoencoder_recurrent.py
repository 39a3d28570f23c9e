"""Recurrent autoencoders: a recurrent model whose first state is the sentence's code."""

import pytest
import torch

from lmzoo.contract import LanguageModel
from tests.laws.density import law_causal, law_next_is_a_distribution, law_sums_to_one
from tests.laws.support import assert_close, log_prob
from tests.models.limits import copied, put, row
from tests.models.test_vae_limits import decoder_of
from tests.tiny import CLOSE, batch, every_sequence

NAMES = ["gru_autoencoder", "rnn_autoencoder"]


def deaf(model: LanguageModel) -> None:
    """Every weight of the encoder zero."""
    weights = dict(model.encoder.named_parameters(prefix="encoder"))
    put(model, dict.fromkeys(weights, 0.0))


@pytest.mark.parametrize(
    ("name", "cell", "start"),
    [("rnn_autoencoder", "rnn", 0.0), ("gru_autoencoder", "gru", 0.5**5)],
)
def test_with_a_deaf_encoder_it_is_the_plain_model(name: str, cell: str, start: float) -> None:
    """A tanh of nothing is 0; a GRU of nothing halves its state of ones at each token."""
    model, plain = row(name), row("recurrent_lm", cell=cell, starts=1)
    deaf(model)
    copied(plain, model, *decoder_of(model))
    put(plain, {"starts.vectors": start})
    tokens, lengths = every_sequence(model.task)
    found, expected = log_prob(model, tokens, lengths), log_prob(plain, tokens, lengths)
    assert_close(found, expected, CLOSE, "scores")
    law_sums_to_one(model)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_code_is_one_vector_of_the_sentence_and_not_of_its_pads(name: str) -> None:
    model = row(name)
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length - 1)
    code = model.encode(tokens, lengths)
    assert code.shape == (len(tokens), model.config.width)
    for t in range(model.task.length):
        changed = tokens.clone()
        changed[:, t] = (tokens[:, t] + 1) % model.task.vocab
        moved = (model.encode(changed, lengths) - code).abs().amax(1)
        assert (moved > 1e-4).all() if t < model.task.length - 1 else (moved == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_no_language_model(name: str) -> None:
    with pytest.raises(AssertionError, match="probability of all tokens at 1"):
        law_causal(row(name))
    with pytest.raises(AssertionError, match="total probability"):
        law_sums_to_one(row(name))


@pytest.mark.parametrize("name", NAMES)
def test_decoding_goes_on_from_the_code_of_the_prefix(name: str) -> None:
    law_next_is_a_distribution(row(name))
