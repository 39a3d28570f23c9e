"""Properties of particular patterns of the minimal gated recurrent unit (MGRU)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.cells.base import Cell
from lmzoo.cells.mgru import MGRU, Carry, Cut, Gate, Output, Squash
from tests.cells.support import inputs, make, outputs
from tests.laws.support import assert_close
from tests.tiny import FINE, quick


def mutant(*mutations: int) -> Tensor:
    """Return the outputs with these switches on."""
    return outputs(make("mgru", mutations=mutations))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([4, 6, 7, 8], [4]),
        ([4, 6, 7, 9], [4, 6, 7]),
        ([7], []),
        ([8], []),
        ([9], []),
        ([7, 8, 9], []),
        ([10, 11], [10]),
        ([0, 2, 5], [0]),
        ([0, 6, 8], [0]),
        ([2, 10], [2]),
    ],
)
def test_patterns_of_the_same_function_give_equal_configs(
    first: list[int], second: list[int]
) -> None:
    assert MGRU.Config(mutations=first) == MGRU.Config(mutations=second)
    assert_close(mutant(*first), mutant(*second), 0, "outputs")


@pytest.mark.parametrize(("raw", "centred"), [([4], [4, 6, 7]), ([4, 6, 8], [4, 6])])
def test_centred_outputs_are_the_states_minus_one_half(raw: list[int], centred: list[int]) -> None:
    assert_close(mutant(*centred), mutant(*raw) - 0.5, FINE, "outputs − ½")


@pytest.mark.parametrize("switch", [0, 2, 4, 5, 6, 10, 11])
def test_each_switch_alone_changes_the_outputs(switch: int) -> None:
    assert (mutant(switch) - mutant()).abs().max() > 1e-3


def test_attention_over_one_output_returns_that_output() -> None:
    wild, attention = mutant(), mutant(10)
    assert_close(attention[:, :2], wild[:, :2], FINE, "first two steps")
    assert (attention[:, 2:] - wild[:, 2:]).abs().max() > 1e-3
    centred = (mutant(6, 10) - mutant(6)).abs()
    assert centred[:, 0].max() <= FINE
    assert centred[:, 1].max() > 1e-3


def test_the_prior_weights_equal_keys() -> None:
    cell = make("mgru", mutations=[10])
    with torch.no_grad():
        cell.attend.key.zero_()
        cell.attend.prior[2, 0] = 50.0  # step 2 carries only output 0
    x, start = inputs(cell)
    first, second = cell.scan(x, start)[:, :2].unbind(1)
    f = torch.sigmoid(second @ cell.w.hf)
    third = (1 - f) * first + f * torch.tanh(x[:, 2] @ cell.w.xh)
    assert_close(cell.scan(x, start)[:, 2], third, FINE, "third state")


def scaled_cell(scale: float, seed: int, mutations: tuple[int, ...]) -> tuple[Cell, Tensor]:
    """Return a cell with weights multiplied by `scale`, and its states, h_0 first."""
    cell = make("mgru", seed=seed, mutations=mutations)
    with torch.no_grad():
        for weight in cell.parameters():
            weight.mul_(scale)
        x, start = inputs(cell, seed=seed)
        o = cell.scan(x, start)
    h = o + 0.5 if cell.config.output is Output.CENTRED else o
    return cell, torch.cat([start[:, None], h], dim=1)


BERNOULLI = [(4,), (4, 6), (4, 6, 7), (4, 6, 8), (4, 6, 9), (0, 4)]


@quick
@given(
    st.floats(0.1, 100), st.integers(0, 9), st.sampled_from([*BERNOULLI, (2, 4), (4, 10), (4, 11)])
)
def test_bernoulli_states_stay_in_the_unit_interval(scale: float, seed: int, on: tuple) -> None:
    _, states = scaled_cell(scale, seed, on)
    assert states.min() >= 0
    assert states.max() <= 1


def test_with_keep_the_state_leaves_the_unit_interval() -> None:
    assert scaled_cell(1.0, 0, (4, 5))[1].max() > 1


@quick
@given(st.floats(0.1, 100), st.integers(0, 9), st.sampled_from(BERNOULLI))
def test_a_bernoulli_state_changes_at_most_by_its_gate(scale: float, seed: int, on: tuple) -> None:
    cell, states = scaled_cell(scale, seed, on)
    before, after = states[:, :-1], states[:, 1:]
    gate_input = before
    if cell.config.gate is Gate.CENTRED:
        gate_input = before - 0.5
    elif cell.config.gate is Gate.LOGIT:
        gate_input = 0.5 * torch.logit(before.clamp(0.00005, 0.99995))
    half = torch.full_like(gate_input, 0.5)
    f = half if cell.w.hf is None else torch.sigmoid(gate_input @ cell.w.hf)
    assert ((after - before).abs() <= f + FINE).all()


def test_numbers_and_names_give_equal_configs() -> None:
    assert MGRU.Config(mutations=[4, 6]) == MGRU.Config(
        squash=Squash.SIGMOID, gate=Gate.CENTRED, output=Output.CENTRED
    )
    assert MGRU.Config(mutations="0;4,10") == MGRU.Config(
        cuts=[Cut.STATE_TO_GATE], squash="sigmoid", carry=Carry.PRIOR
    )


@pytest.mark.parametrize("value", [[12], [-1], "reset", ["4.0"]])
def test_an_unknown_number_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"numbers 0\.\.11, got"):
        MGRU.Config(mutations=value)


def test_numbers_set_every_switch() -> None:
    """They override other fields: in a full config those are defaults."""
    assert MGRU.Config(mutations=[4], squash="tanh", keep=True) == MGRU.Config(mutations=[4])


def test_a_text_is_not_a_boolean() -> None:
    """`canonical` would take "false" for True, and change the cuts."""
    with pytest.raises(ValueError, match="keep"):
        MGRU.Config(cuts=["carry", "write"], keep="false")


def test_a_zero_state_is_an_error_with_named_cuts_too() -> None:
    with pytest.raises((UserError, ValueError), match="h = 0 at every step"):
        MGRU.Config(cuts=["carry", "input_to_candidate"])


def test_options_of_another_carry_do_not_change_the_config():
    assert MGRU.Config(heads=2, prior=False) == MGRU.Config()
    assert MGRU.Config(mutations=[10], heads=2) == MGRU.Config(mutations=[10])
    assert MGRU.Config(mutations=[10], prior=False) != MGRU.Config(mutations=[10])
    assert MGRU.Config(mutations=[11], heads=2) != MGRU.Config(mutations=[11])


def test_an_invalid_value_of_an_unused_option_is_an_error():
    with pytest.raises(ValueError, match="heads"):
        MGRU.Config(heads=0)
