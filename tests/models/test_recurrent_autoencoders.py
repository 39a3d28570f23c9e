"""Recurrent autoencoders: recurrent models whose initial state is the code of the sentence."""

import pytest
import torch

from tests.models.equivalence import small
from tests.tiny import batch

NAMES = ["gru_autoencoder", "rnn_autoencoder"]


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
