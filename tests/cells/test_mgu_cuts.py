"""All 256 cut sets of the minimal gated unit against its equations."""

import pytest
import torch

from lmzoo.cells.base import Cell
from lmzoo.cells.mgu import MGU, Cut
from lmzoo.errors import UserError
from tests.cells.mgu_equations import mgu
from tests.cells.run import bits, groups, inputs, make, outputs, subsets
from tests.laws.support import assert_close
from tests.tiny import FINE

SETS = subsets(8)
PATHS = {"xf": 0, "hf": 1, "bf": 2, "xh": 3, "hh": 4, "bh": 5}


@pytest.fixture(scope="module")
def cells() -> list[Cell | None]:
    """The cell of each cut set, None where it is refused."""

    def attempt(cuts: tuple[int, ...]) -> Cell | None:
        try:
            return make("mgu", cuts=cuts)
        except UserError:
            return None

    return [attempt(cuts) for cuts in SETS]


@pytest.fixture(scope="module")
def expected() -> torch.Tensor:
    wild = make("mgu")
    w = dict(wild.w.named_parameters())
    with torch.no_grad():
        return mgu(w, bits(8), *inputs(wild))


def blind() -> torch.Tensor:
    """Which cut sets give equal states under other inputs, by the equations."""
    wild = make("mgu")
    w = dict(wild.w.named_parameters())
    (x, start), (other, _) = inputs(wild), inputs(wild, seed=2)
    with torch.no_grad():
        apart = mgu(w, bits(8), x, start) - mgu(w, bits(8), other, start)
    return apart.abs().amax((1, 2, 3)) < FINE


def test_every_cut_set_is_its_equation(cells: list[Cell | None], expected: torch.Tensor) -> None:
    for cell, states, cuts in zip(cells, expected, SETS, strict=True):
        if cell is not None:
            assert_close(outputs(cell), states, FINE, f"outputs of {cuts}")


def test_exactly_the_72_zero_states_are_refused(
    cells: list[Cell | None], expected: torch.Tensor
) -> None:
    zero = (expected.abs().amax((1, 2, 3)) == 0).tolist()
    assert [cell is None for cell in cells] == zero
    assert sum(zero) == 72


def test_a_refusal_gives_its_reason() -> None:
    with pytest.raises(UserError, match=r"cuts carry \(6\), write \(7\) leave h = 0 at every step; "):
        make("mgu", cuts=[6, 7])


def test_exactly_the_60_input_blind_are_named(cells: list[Cell | None]) -> None:
    found = [cell is not None and cell.input_blind for cell in cells]
    kept = [cell is not None for cell in cells]
    assert found == [is_blind and there for is_blind, there in zip(blind(), kept, strict=True)]
    assert sum(found) == 60


def test_configs_are_equal_exactly_where_functions_are(
    cells: list[Cell | None], expected: torch.Tensor
) -> None:
    seeing = [i for i, cell in enumerate(cells) if cell is not None and not cell.input_blind]
    configs = [cells[i].config for i in seeing]
    assert groups(expected[seeing]) == [configs.index(config) for config in configs]
    assert (len(seeing), len(set(configs))) == (124, 92)


def test_a_weight_is_allocated_exactly_where_it_matters(cells: list[Cell | None]) -> None:
    for cell, cuts in zip(cells, SETS, strict=True):
        if cell is not None:
            unused = {"xh", "hh", "bh"} if Cut.WRITE in cell.cuts else set()
            kept = {name for name, number in PATHS.items() if number not in cuts} - unused
            assert {name for name, _ in cell.w.named_parameters()} == kept, cuts


@pytest.mark.parametrize("cut", Cut)
def test_each_cut_alone_changes_the_outputs(cut: Cut) -> None:
    assert (outputs(make("mgu", cuts=[cut])) - outputs(make("mgu"))).abs().max() > 1e-3


@pytest.mark.parametrize("cut", Cut)
def test_a_mutant_starts_from_the_wild_types_values(cut: Cut) -> None:
    wild, mutant = (dict(make("mgu", cuts=cuts).named_parameters()) for cuts in ([], [cut]))
    assert all(wild[name].equal(weight) for name, weight in mutant.items())


def test_cuts_have_names_numbers_and_texts() -> None:
    named = MGU.Config(cuts=["input_to_gate", "gate_bias"])
    assert named == MGU.Config(cuts=[0, 2]) == MGU.Config(cuts="0,2") == MGU.Config(cuts="2;0")


@pytest.mark.parametrize("wrong", [[8], "reset", -1])
def test_an_unknown_cut_is_refused_with_the_known_ones(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"no cut .*input_to_gate"):
        MGU.Config(cuts=wrong)
