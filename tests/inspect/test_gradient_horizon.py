"""Gradient horizons, compared with finite differences and closed forms."""

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.inspect.gradient_horizon import gradient_horizon, half_life
from lmzoo.laws.probes import disturb
from tests.tiny import batch, tiny


def full_sequences(length: int = 7) -> Tensor:
    tokens, _ = batch(Task(vocab=3, length=length), count=4)
    return tokens


def test_equals_central_differences_of_the_loss():
    model = tiny("rnn_lm", length=5).double()
    tokens = full_sequences(5)
    norms = gradient_horizon(model, tokens)
    assert norms.shape == (3,)

    def loss(step: int, shift: Tensor) -> Tensor:
        """Return the loss of the last token with a shift of the state after `step` tokens."""
        state = model.begin(len(tokens))
        scores = torch.empty(0)
        for i, token in enumerate(tokens[:, :-1].unbind(1), 1):
            scores, state = model.advance(state, token)
            if i == step:
                ((h,),) = state.layers
                state = state._replace(layers=((h + shift,),))
        return -scores.gather(1, tokens[:, -1:])[:, 0]

    eps = 1e-5
    for d in (1, 2, 3):
        columns = []
        for j in range(4):
            shift = torch.zeros(4, 1, 4, dtype=torch.float64)
            shift[..., j] = eps
            difference = loss(4 - d, shift) - loss(4 - d, -shift)
            columns.append(difference / (2 * eps))
        gradients = torch.stack(columns, 1)
        expected = gradients.norm(dim=1).mean()
        assert (norms[d - 1] - expected).abs() < 1e-8


def test_a_larger_forget_bias_gives_a_longer_horizon():
    def remaining_share(bias: float) -> Tensor:
        cell = {"name": "lstm", "forget_bias": bias}
        model = tiny("lstm_lm", length=12, cell=cell)
        norms = gradient_horizon(model, full_sequences(12))
        return norms[-1] / norms[0]

    remembers = remaining_share(5.0)
    forgets = remaining_share(-5.0)
    assert remembers > 0.3
    assert forgets < 1e-3


def test_half_life_is_the_first_distance_with_at_most_half():
    assert half_life(torch.tensor([8.0, 5.0, 4.0, 1.0])) == 3
    assert half_life(torch.tensor([8.0, 5.0, 5.0])) is None


@pytest.mark.parametrize("name", ["gpt", "backward_lm", "ngram_count"])
def test_rows_without_recurrent_state_are_rejected(name):
    model = tiny(name)
    with pytest.raises(UserError, match=f"{model.name} has no recurrent state"):
        gradient_horizon(model, full_sequences())


RECURRENT = [name for name in zoo.names() if zoo.row(name).model in ("recurrent_lm", "latent_ar")]
RECURRENT.remove("hybrid")  # its state grows


@pytest.mark.parametrize("name", RECURRENT)
def test_every_recurrent_row_has_a_positive_horizon(name):
    model = tiny(name, length=6)
    disturb(model)  # weights that start at zero pass no gradient
    norms = gradient_horizon(model, full_sequences(6))
    assert norms.shape == (4,)
    assert (norms > 0).all()
