"""What is known of particular patterns of the minimal gated recurrent unit."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.cells.base import Cell
from lmzoo.cells.mgru import MGRU
from lmzoo.cells.mgru_switches import Carry, Cut, Gate, Output, Squash
from lmzoo.errors import UserError
from tests.cells.run import inputs, make, outputs
from tests.laws.support import assert_close
from tests.tiny import FINE, quick


def mutant(*mutations: int) -> Tensor:
    return outputs(make("mgru", mutations=mutations))


@pytest.mark.parametrize(
    ("one", "other"),
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
def test_patterns_of_one_function_are_one_config(one: list[int], other: list[int]) -> None:
    assert MGRU.Config(mutations=one) == MGRU.Config(mutations=other)
    assert_close(mutant(*one), mutant(*other), 0, "outputs")


@pytest.mark.parametrize(("raw", "centred"), [([4], [4, 6, 7]), ([4, 6, 8], [4, 6])])
def test_centred_outputs_are_the_states_less_a_half(raw: list[int], centred: list[int]) -> None:
    assert_close(mutant(*centred), mutant(*raw) - 0.5, FINE, "outputs less ½")


@pytest.mark.parametrize("switch", [0, 2, 4, 5, 6, 10, 11])
def test_each_switch_alone_changes_the_outputs(switch: int) -> None:
    assert (mutant(switch) - mutant()).abs().max() > 1e-3


def test_attention_over_one_key_carries_it() -> None:
    wild, attending = mutant(), mutant(10)
    assert_close(attending[:, :2], wild[:, :2], FINE, "first two steps")
    assert (attending[:, 2:] - wild[:, 2:]).abs().max() > 1e-3
    centred = (mutant(6, 10) - mutant(6)).abs()
    assert centred[:, 0].max() <= FINE
    assert centred[:, 1].max() > 1e-3


def test_the_prior_decides_between_equal_keys() -> None:
    cell = make("mgru", mutations=[10])
    with torch.no_grad():
        cell.attend.key.zero_()
        cell.attend.prior[2, 0] = 50.0  # at the third step everything is carried from the first
    x, start = inputs(cell)
    first, second = cell.scan(x, start)[:, :2].unbind(1)
    f = torch.sigmoid(second @ cell.w.hf)
    third = (1 - f) * first + f * torch.tanh(x[:, 2] @ cell.w.xh)
    assert_close(cell.scan(x, start)[:, 2], third, FINE, "third state")


def drawn(scale: float, seed: int, mutations: tuple[int, ...]) -> tuple[Cell, Tensor]:
    """A cell with weights `scale` times too large, and the states it goes through, h_0 first."""
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
    _, states = drawn(scale, seed, on)
    assert states.min() >= 0
    assert states.max() <= 1


def test_a_kept_state_leaves_the_unit_interval() -> None:
    assert drawn(1.0, 0, (4, 5))[1].max() > 1


@quick
@given(st.floats(0.1, 100), st.integers(0, 9), st.sampled_from(BERNOULLI))
def test_a_bernoulli_state_moves_at_most_by_its_gate(scale: float, seed: int, on: tuple) -> None:
    cell, states = drawn(scale, seed, on)
    before, after = states[:, :-1], states[:, 1:]
    read = before
    if cell.config.gate is Gate.CENTRED:
        read = before - 0.5
    elif cell.config.gate is Gate.LOGIT:
        read = 0.5 * torch.logit(before.clamp(0.00005, 0.99995))
    f = torch.full_like(read, 0.5) if cell.w.hf is None else torch.sigmoid(read @ cell.w.hf)
    assert ((after - before).abs() <= f + FINE).all()


def test_numbers_are_names() -> None:
    assert MGRU.Config(mutations=[4, 6]) == MGRU.Config(
        squash=Squash.SIGMOID, gate=Gate.CENTRED, output=Output.CENTRED
    )
    assert MGRU.Config(mutations="0;4,10") == MGRU.Config(
        cuts=[Cut.STATE_TO_GATE], squash="sigmoid", carry=Carry.PRIOR
    )


@pytest.mark.parametrize("wrong", [[12], [-1], "reset", ["4.0"]])
def test_an_unknown_number_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"numbers 0\.\.11, got"):
        MGRU.Config(mutations=wrong)


def test_numbers_speak_for_every_switch() -> None:
    """Laid over a full set of fields they must not be undone by the defaults among them."""
    assert MGRU.Config(mutations=[4], squash="tanh", keep=True) == MGRU.Config(mutations=[4])


def test_a_text_is_no_truth_value() -> None:
    """ "false" would pass for true when equal configs are sought, and silently cut another path."""
    with pytest.raises(ValueError, match="keep"):
        MGRU.Config(cuts=["carry", "write"], keep="false")


def test_a_refused_pattern_is_refused_by_name_too() -> None:
    with pytest.raises((UserError, ValueError), match="h = 0 at every step"):
        MGRU.Config(cuts=["carry", "input_to_candidate"])


def test_options_of_a_carry_that_is_not_there_make_no_other_config():
    assert MGRU.Config(heads=2, prior=False) == MGRU.Config()
    assert MGRU.Config(mutations=[10], heads=2) == MGRU.Config(mutations=[10])
    assert MGRU.Config(mutations=[10], prior=False) != MGRU.Config(mutations=[10])
    assert MGRU.Config(mutations=[11], heads=2) != MGRU.Config(mutations=[11])


def test_a_wrong_value_is_refused_even_where_it_has_no_effect_on_the_function():
    with pytest.raises(ValueError, match="heads"):
        MGRU.Config(heads=0)
