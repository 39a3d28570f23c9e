"""What the encoder of a VAE reads, and the states that its decoder starts from."""

import pytest
import torch

from tests.models.equivalence import small
from tests.tiny import batch, tiny


@torch.no_grad()
def test_encoder_reads_every_scored_token_and_nothing_else() -> None:
    model = small("gru_vae")
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length - 1)
    before = model.encode_sentence(tokens, lengths)
    for t in range(model.task.length):
        changed = tokens.clone()
        changed[:, t] = (tokens[:, t] + 1) % model.task.vocab
        moved = (model.encode_sentence(changed, lengths) - before).abs().amax(1)
        assert ((moved > 1e-4) == (1 <= t < model.task.length - 1)).all()


@torch.no_grad()
@pytest.mark.parametrize("name", ["gru_vae", "gru_ternary_vae", "gru_autoencoder"])
@pytest.mark.parametrize("mutations", [[4], [4, 6]], ids=str)
def test_bernoulli_states_are_probabilities_for_any_latent(name: str, mutations: list[int]) -> None:
    """Any vector z is mapped to a valid state. A centred cell outputs h - ½."""
    model = tiny(name, norm="none", cell={"name": "mgru", "mutations": mutations}).eval()
    tokens, _ = batch(model.task)
    for z in (-3.0, 0.0, 1.0, 3.0):
        h = model.outputs(tokens, torch.full((1, len(tokens), 4), z))
        h = h + 0.5 if 6 in mutations else h
        assert h.min() >= 0
        assert h.max() <= 1
    with_memory = tiny(name, norm="none", cell="gru").eval()
    start = torch.full((1, len(tokens), 4), 3.0)
    assert with_memory.outputs(tokens, start).max() > 1  # states of other cells are unbounded
