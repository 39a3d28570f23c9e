"""A named scheme draws every matrix, clears every bias, and leaves what a field asked for."""

import math
from typing import Any

import pytest
import torch

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.cells.rnn import spectral_radius
from lmzoo.contract import LanguageModel, Task

TASK = Task(vocab=50, length=6)
FINE = 0.001
BIASES = {
    "mutable_mgu_mixture": {"cell.w.bf", "cell.w.bh"},
    "grid_lstm": {f"cell.blocks.{k}.{which}_bias" for k in range(2) for which in ("time", "depth")},
    "gated_feedback_gru": {"cell.w.b", "cell.w.gates_bias"},
    "lstm_lm": {"cell.w.bias_ih", "cell.w.bias_hh"},
}
"""All that a row's cell adds."""


def drawn(name: str, init: str, **fields: Any) -> LanguageModel:
    return zoo.build(zoo.config(name, **{"width": 16, **fields}), TASK, seed=1, init=init)


@pytest.mark.parametrize("name", BIASES)
def test_biases_are_cleared_whatever_they_are_called_and_nothing_else_is(name: str) -> None:
    model = drawn(name, f"uniform_{FINE}")
    cell = dict(model.named_parameters(prefix="")).items()
    cleared = {path for path, weight in cell if path.startswith("cell.") and not weight.any()}
    assert cleared == BIASES[name]


@pytest.mark.parametrize("cell", [*CELLS])
def test_no_number_of_a_cell_is_beyond_the_scheme(cell: str) -> None:
    """Unless a rule of the cell's own put it there: a boundary of HM-LSTM begins at ½."""
    built = drawn("recurrent_lm", f"uniform_{FINE}", cell=cell).get_submodule("cell")
    for path, weight in built.named_parameters():
        beyond = weight[weight.abs() > FINE]
        assert not beyond.numel() or (cell == "hm_lstm" and beyond.eq(0.5).all()), path


@pytest.mark.parametrize("init", ["kaiming_normal", "xavier_normal"])
def test_each_matrix_of_a_stack_has_the_spread_of_its_own_fans(init: str) -> None:
    """U of gated feedback is D x D matrices (H, H), not a kernel of size H."""
    weight = drawn("gated_feedback_gru", init, width=64).get_parameter("cell.w.u")
    assert weight.shape == (2, 2, 64, 64)
    wanted = (2 / 64) ** 0.5 if init == "kaiming_normal" else (2 / 128) ** 0.5
    for matrix in weight.flatten(0, 1):
        assert matrix.std().item() == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize("init", ["default", "normal_0.02", "kaiming_uniform"])
def test_a_spectral_radius_asked_for_outlives_the_scheme(init: str) -> None:
    weight = drawn("rnn_lm", init, cell={"spectral": True}).get_parameter("cell.w.weight_hh")
    assert spectral_radius(weight).item() == pytest.approx(1.0, abs=1e-5)


def test_a_forget_bias_asked_for_outlives_the_scheme() -> None:
    cell = drawn("lstm_lm", "normal_0.02", cell={"forget_bias": 2.0}).get_submodule("cell")
    i, f, g, o = (cell.get_parameter("w.bias_ih") + cell.get_parameter("w.bias_hh")).chunk(4)
    assert f.eq(2.0).all()
    assert not torch.stack([i, g, o]).any()


@pytest.mark.parametrize("forget", ["none", "coupled"])
def test_a_cell_without_a_gate_draws_the_others_as_the_full_cell_does(forget: str) -> None:
    full = drawn("lstm_lm", "kaiming_normal").get_parameter("cell.w.weight_hh")
    part = drawn("lstm_lm", "kaiming_normal", cell={"forget": forget})
    i, _, g, o = full.chunk(4)
    assert part.get_parameter("cell.w.weight_hh").equal(torch.cat([i, g, o]))


def test_boundaries_of_a_hierarchical_lstm_still_begin_ajar() -> None:
    bias = drawn("hm_lstm", "normal_0.02").get_parameter("cell.layers.0.bias")
    assert bias[-1] == 0.5
    assert not bias[:-1].any()


@pytest.mark.parametrize("learned", [False, True])
def test_noise_contrastive_training_still_begins_normalised(*, learned: bool) -> None:
    model = drawn("nce", "normal_0.02", learned_log_z=learned)
    bias = model.get_parameter("bias")
    apart = -math.log(TASK.vocab)
    assert torch.allclose(bias, torch.full_like(bias, 0.0 if learned else apart))
    if learned:
        assert model.get_parameter("log_z").item() == pytest.approx(-apart)


def test_the_scales_of_components_are_no_matrix() -> None:
    plain, model = (drawn("mutable_mgu_mixture", init) for init in ("default", "kaiming_normal"))
    assert model.get_parameter("emission.log_scale").equal(
        plain.get_parameter("emission.log_scale")
    )
    assert not model.get_parameter("emission.means").equal(plain.get_parameter("emission.means"))


def test_a_matrix_written_the_other_way_round_has_its_own_fan_in() -> None:
    weight = drawn("gru_ternary_vae", "kaiming_normal", width=64).get_parameter("z.to_logits")
    assert weight.shape == (64, 3 * 64)
    assert weight.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.05)
