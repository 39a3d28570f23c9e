"""Named initialisers draw matrices, clear biases, and keep values that a config field sets."""

import math
from typing import Any

import pytest
import torch

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.cells.rnn import spectral_radius
from lmzoo.contract import LanguageModel, Task
from lmzoo.train.recipe import Recipe
from tests.cells.support import own_weights

TASK = Task(vocab=50, length=6)
FINE = 0.001
BIASES = {
    "mutable_mgu_mixture": {"cell.w.bf", "cell.w.bh"},
    "grid_lstm": {f"cell.blocks.{k}.{which}_bias" for k in range(2) for which in ("time", "depth")},
    "gated_feedback_gru": {"cell.w.b", "cell.w.gates_bias"},
    "lstm_lm": {"cell.w.bias_ih", "cell.w.bias_hh"},
}
"""Row name -> all biases of its cell."""


def build_model(name: str, init: str, **fields: Any) -> LanguageModel:
    return zoo.build(zoo.config(name, **{"width": 16, **fields}), TASK, seed=1, init=init)


@pytest.mark.parametrize("name", BIASES)
def test_named_initialiser_clears_exactly_the_biases(name: str) -> None:
    model = build_model(name, f"uniform_{FINE}")
    cell = dict(model.named_parameters(prefix="")).items()
    cleared = {path for path, weight in cell if path.startswith("cell.") and not weight.any()}
    assert cleared == BIASES[name]


SET_BIASES = {"hm_lstm": 0.5, "mamba3": 1.0}
"""The boundary bias of HM-LSTM; the biases of B and C in Mamba-3."""


@pytest.mark.parametrize("cell", [*CELLS])
def test_initial_values_of_a_cell_are_within_the_range_of_the_initialiser(cell: str) -> None:
    """Exceptions: biases that a cell sets; vectors may have draws of their own."""
    built = build_model("recurrent_lm", f"uniform_{FINE}", cell=cell).get_submodule("cell")
    own = own_weights(built)
    for path, weight in built.named_parameters():
        if path in own and weight.dim() < 2:
            continue
        beyond = weight[weight.abs() > FINE]
        assert not beyond.numel() or beyond.eq(SET_BIASES.get(cell, torch.nan)).all(), path


@pytest.mark.parametrize("init", ["kaiming_normal", "xavier_normal"])
def test_stacked_matrices_are_initialised_by_their_own_fans(init: str) -> None:
    """U of gated feedback is a stack of D x D matrices (H, H), not a convolution kernel."""
    weight = build_model("gated_feedback_gru", init, width=64).get_parameter("cell.w.u")
    assert weight.shape == (2, 2, 64, 64)
    expected = (2 / 64) ** 0.5 if init == "kaiming_normal" else (2 / 128) ** 0.5
    for matrix in weight.flatten(0, 1):
        assert matrix.std().item() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("init", ["default", "normal_0.02", "kaiming_uniform"])
def test_initialiser_keeps_the_spectral_radius(init: str) -> None:
    weight = build_model("rnn_lm", init, cell={"spectral": True}).get_parameter("cell.w.weight_hh")
    assert spectral_radius(weight).item() == pytest.approx(1.0, abs=1e-5)


def test_initialiser_keeps_the_forget_bias() -> None:
    cell = build_model("lstm_lm", "normal_0.02", cell={"forget_bias": 2.0}).get_submodule("cell")
    i, f, g, o = (cell.get_parameter("w.bias_ih") + cell.get_parameter("w.bias_hh")).chunk(4)
    assert f.eq(2.0).all()
    assert not torch.stack([i, g, o]).any()


@pytest.mark.parametrize("forget", ["none", "coupled"])
def test_cell_without_forget_gate_has_the_same_other_weights(forget: str) -> None:
    full = build_model("lstm_lm", "kaiming_normal").get_parameter("cell.w.weight_hh")
    part = build_model("lstm_lm", "kaiming_normal", cell={"forget": forget})
    i, _, g, o = full.chunk(4)
    assert part.get_parameter("cell.w.weight_hh").equal(torch.cat([i, g, o]))


def test_initialiser_keeps_the_boundary_bias_of_hm_lstm() -> None:
    bias = build_model("hm_lstm", "normal_0.02").get_parameter("cell.layers.0.bias")
    assert bias[-1] == 0.5
    assert not bias[:-1].any()


@pytest.mark.parametrize("learned", [False, True])
def test_initialiser_keeps_nce_normalised(*, learned: bool) -> None:
    model = build_model("nce", "normal_0.02", learned_log_z=learned)
    bias = model.get_parameter("bias")
    log_vocab = -math.log(TASK.vocab)
    assert torch.allclose(bias, torch.full_like(bias, 0.0 if learned else log_vocab))
    if learned:
        assert model.get_parameter("log_z").item() == pytest.approx(-log_vocab)


def test_initialiser_keeps_the_component_scales() -> None:
    name = "mutable_mgu_mixture"
    plain, model = (build_model(name, init) for init in ("default", "kaiming_normal"))
    assert model.get_parameter("emission.log_scale").equal(
        plain.get_parameter("emission.log_scale")
    )
    assert not model.get_parameter("emission.means").equal(plain.get_parameter("emission.means"))


def test_transposed_matrix_is_initialised_by_its_own_fan_in() -> None:
    weight = build_model("gru_ternary_vae", "kaiming_normal", width=64).get_parameter("z.to_logits")
    assert weight.shape == (64, 3 * 64)
    assert weight.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.05)


@pytest.mark.parametrize("name", ["lstm_lm", "transformer_decoder"])
def test_named_initialiser_draws_every_matrix_and_clears_every_bias(name: str) -> None:
    config = zoo.config(name)
    plain, drawn = zoo.build(config, TASK), zoo.build(config, TASK, init="uniform_0.01")
    again, other = (zoo.build(config, TASK, seed, "uniform_0.01") for seed in (0, 1))
    matrices = 0
    for path, weight in drawn.named_parameters():
        if weight.dim() >= 2:
            matrices += 1
            assert 0.009 < weight.abs().max() <= 0.01
            assert weight.equal(again.get_parameter(path))
            assert not weight.equal(other.get_parameter(path))
        elif path.rpartition(".")[2].startswith("bias"):
            assert not weight.any()
        else:
            assert weight.equal(plain.get_parameter(path))
    assert matrices >= 3


def test_building_does_not_change_the_global_generator() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        before = torch.get_rng_state()
        zoo.build(zoo.config("nce"), TASK, init="xavier_normal")
        # Constructors use the global generator; `initialise` must not change it.
        made = torch.get_rng_state()
        torch.set_rng_state(before)
        zoo.build(zoo.config("nce"), TASK)
        assert made.equal(torch.get_rng_state())


def test_unknown_initialiser_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown initialiser 'xavier'"):
        Recipe(init="xavier")
