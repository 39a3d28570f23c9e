"""Named initialisers draw matrices, clear biases, and keep values that a config field sets."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.contract import Task
from tests.cases import parametrize
from tests.cells.support import own_weights

TASK = Task(vocab=50, length=6)
FINE = 0.001


def build_model(name, init, width=16, **fields):
    config = zoo.config(name, width=width, **fields)
    return zoo.build(config, TASK, seed=1, init=init)


SET_BIASES = {"hm_lstm": 0.5, "mamba3": 1.0}
"""The boundary bias of HM-LSTM; the biases of B and C in Mamba-3."""


@parametrize("cell", list(CELLS))
def test_initial_values_of_a_cell_are_within_the_range_of_the_initialiser(cell):
    """Exceptions: biases that a cell sets; vectors may have draws of their own."""
    model = build_model("recurrent_lm", f"uniform_{FINE}", cell=cell)
    built = model.get_submodule("cell")
    own = own_weights(built)
    set_to = SET_BIASES.get(cell, torch.nan)
    for path, weight in built.named_parameters():
        if path in own and weight.dim() < 2:
            continue
        beyond = weight[weight.abs() > FINE]
        assert beyond.eq(set_to).all(), path


# √(2 / fan in), and √(2 / (fan in + fan out)).
DEVIATIONS = {"kaiming_normal": (2 / 64) ** 0.5, "xavier_normal": (2 / 128) ** 0.5}


@parametrize("init", DEVIATIONS)
def test_stacked_matrices_are_initialised_by_their_own_fans(init):
    """U of gated feedback is a stack of D x D matrices (H, H), not a convolution kernel."""
    model = build_model("gated_feedback_gru", init, width=64)
    weight = model.get_parameter("cell.w.u")
    assert weight.shape == (2, 2, 64, 64)
    for matrix in weight.flatten(0, 1):
        deviation = matrix.std().item()
        assert deviation == pytest.approx(DEVIATIONS[init], rel=0.05)


def test_transposed_matrix_is_initialised_by_its_own_fan_in():
    model = build_model("gru_ternary_vae", "kaiming_normal", width=64)
    weight = model.get_parameter("z.to_logits")
    expected = DEVIATIONS["kaiming_normal"]
    assert weight.shape == (64, 3 * 64)
    deviation = weight.std().item()
    assert deviation == pytest.approx(expected, rel=0.05)
