"""Gradient horizons, compared with finite differences and closed forms."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.inspect.gradient_horizon import gradient_horizon, half_life
from lmzoo.laws.probes import disturb
from tests.cases import parametrize
from tests.tiny import batch, tiny


def full_sequences(length=7):
    task = Task(vocab=3, length=length)
    tokens, _ = batch(task, count=4)
    return tokens


def test_equals_central_differences_of_the_loss():
    model = tiny("rnn_lm", length=5).double()
    tokens = full_sequences(5)
    norms = gradient_horizon(model, tokens)
    assert norms.shape == (3,)

    def loss(step, shift):
        """Return the loss of the last token with a shift of the state after `step` tokens."""
        state = model.begin(len(tokens))
        scores = torch.empty(0)
        read = tokens[:, :-1]
        for i, token in enumerate(read.unbind(1), 1):
            scores, state = model.advance(state, token)
            if i == step:
                ((h,),) = state.layers
                layers = ((h + shift,),)
                state = state._replace(layers=layers)
        chosen = scores.gather(1, tokens[:, -1:])
        return -chosen[:, 0]

    eps = 1e-5
    for distance in (1, 2, 3):
        step = 4 - distance
        columns = []
        for channel in range(4):
            shift = torch.zeros(4, 1, 4).double()
            shift[..., channel] = eps
            difference = loss(step, shift) - loss(step, -shift)
            columns.append(difference / (2 * eps))
        gradients = torch.stack(columns, 1)
        expected = gradients.norm(dim=1).mean()
        error = norms[distance - 1] - expected
        assert error.abs() < 1e-8


def test_a_larger_forget_bias_gives_a_longer_horizon():
    def remaining_share(bias):
        cell = {"name": "lstm", "forget_bias": bias}
        model = tiny("lstm_lm", length=12, cell=cell)
        norms = gradient_horizon(model, full_sequences(12))
        return norms[-1] / norms[0]

    # A forget gate near one, and one near zero.
    remembers = remaining_share(5.0)
    forgets = remaining_share(-5.0)
    assert remembers > 0.3
    assert forgets < 1e-3


def test_half_life_is_the_first_distance_with_at_most_half():
    falling = torch.tensor([8.0, 5.0, 4.0, 1.0])
    lasting = torch.tensor([8.0, 5.0, 5.0])
    assert half_life(falling) == 3
    assert half_life(lasting) is None


@parametrize("name", ["gpt", "backward_lm", "ngram_count"])
def test_rows_without_recurrent_state_are_rejected(name):
    model = tiny(name)
    with pytest.raises(UserError, match=f"{model.name} has no recurrent state"):
        gradient_horizon(model, full_sequences())


RECURRENT = []
for name in zoo.names():
    # The state of a hybrid grows.
    if zoo.row(name).model in ("recurrent_lm", "latent_ar") and name != "hybrid":
        RECURRENT.append(name)


@parametrize("name", RECURRENT)
def test_every_recurrent_row_has_a_positive_horizon(name):
    model = tiny(name, length=6)
    disturb(model)  # weights that start at zero pass no gradient
    norms = gradient_horizon(model, full_sequences(6))
    assert norms.shape == (4,)
    assert (norms > 0).all()
