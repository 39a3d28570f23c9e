"""All 256 sets of cuts of the MGU against its equations."""

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.cells.base import Cell
from lmzoo.cells.mgu import MGU, Cut
from tests.cells.mgu_equations import mgu
from tests.cells.support import bits, groups, inputs, make, outputs, subsets
from tests.laws.support import assert_close
from tests.tiny import FINE

SETS = subsets(8)
PATHS = {"xf": 0, "hf": 1, "bf": 2, "xh": 3, "hh": 4, "bh": 5}


@pytest.fixture(scope="module")
def cells() -> list[Cell | None]:
    """Return the cell of each set of cuts, or None if the set is an error."""

    def cell_of(cuts: tuple[int, ...]) -> Cell | None:
        try:
            return make("mgu", cuts=cuts)
        except UserError:
            return None

    return [cell_of(cuts) for cuts in SETS]


@pytest.fixture(scope="module")
def expected() -> torch.Tensor:
    wild = make("mgu")
    w = dict(wild.w.named_parameters())
    with torch.no_grad():
        return mgu(w, bits(8), *inputs(wild))


def blind() -> torch.Tensor:
    """Return for every set of cuts whether its states ignore the inputs, by the equations."""
    wild = make("mgu")
    w = dict(wild.w.named_parameters())
    (x, start), (other, _) = inputs(wild), inputs(wild, seed=2)
    with torch.no_grad():
        difference = mgu(w, bits(8), x, start) - mgu(w, bits(8), other, start)
    return difference.abs().amax((1, 2, 3)) < FINE


def test_every_set_of_cuts_computes_its_equation(
    cells: list[Cell | None], expected: torch.Tensor
) -> None:
    for cell, states, cuts in zip(cells, expected, SETS, strict=True):
        if cell is not None:
            assert_close(outputs(cell), states, FINE, f"outputs of {cuts}")


def test_exactly_the_72_sets_with_zero_state_are_errors(
    cells: list[Cell | None], expected: torch.Tensor
) -> None:
    zero = (expected.abs().amax((1, 2, 3)) == 0).tolist()
    assert [cell is None for cell in cells] == zero
    assert sum(zero) == 72


def test_the_error_names_the_cuts() -> None:
    with pytest.raises(
        UserError, match=r"cuts carry \(6\), write \(7\) leave h = 0 at every step; "
    ):
        make("mgu", cuts=[6, 7])


def test_exactly_60_sets_are_input_blind(cells: list[Cell | None]) -> None:
    result = [cell is not None and cell.input_blind for cell in cells]
    valid = [cell is not None for cell in cells]
    assert result == [is_blind and ok for is_blind, ok in zip(blind(), valid, strict=True)]
    assert sum(result) == 60


def test_configs_are_equal_exactly_if_functions_are_equal(
    cells: list[Cell | None], expected: torch.Tensor
) -> None:
    reading = [i for i, cell in enumerate(cells) if cell is not None and not cell.input_blind]
    configs = [cells[i].config for i in reading]
    assert groups(expected[reading]) == [configs.index(config) for config in configs]
    assert (len(reading), len(set(configs))) == (124, 92)


def test_exactly_the_used_weights_are_allocated(cells: list[Cell | None]) -> None:
    for cell, cuts in zip(cells, SETS, strict=True):
        if cell is not None:
            unused = {"xh", "hh", "bh"} if Cut.WRITE in cell.cuts else set()
            used = {name for name, number in PATHS.items() if number not in cuts} - unused
            assert {name for name, _ in cell.w.named_parameters()} == used, cuts


@pytest.mark.parametrize("cut", Cut)
def test_each_cut_alone_changes_the_outputs(cut: Cut) -> None:
    assert (outputs(make("mgu", cuts=[cut])) - outputs(make("mgu"))).abs().max() > 1e-3


@pytest.mark.parametrize("cut", Cut)
def test_a_mutant_starts_with_the_weights_of_the_wild_type(cut: Cut) -> None:
    wild, mutant = (dict(make("mgu", cuts=cuts).named_parameters()) for cuts in ([], [cut]))
    assert all(wild[name].equal(weight) for name, weight in mutant.items())


def test_cuts_are_given_by_name_number_or_text() -> None:
    named = MGU.Config(cuts=["input_to_gate", "gate_bias"])
    assert named == MGU.Config(cuts=[0, 2]) == MGU.Config(cuts="0,2") == MGU.Config(cuts="2;0")


@pytest.mark.parametrize("value", [[8], "reset", -1])
def test_an_unknown_cut_is_an_error_that_lists_the_known_ones(value: object) -> None:
    with pytest.raises(ValueError, match=r"no cut .*; known: input_to_gate \(0\), "):
        MGU.Config(cuts=value)
