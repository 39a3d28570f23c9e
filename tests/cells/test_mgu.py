"""All 256 sets of cuts of the MGU against its equations."""

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.base import Cell
from lmzoo.cells.mgu import MGU
from lmzoo.contract import LanguageModel, Task
from lmzoo.laws.support import assert_close, loss
from tests.cells.support import bits, groups, inputs, make, outputs, subsets
from tests.tiny import FINE, SAME, batch

SETS = subsets(8)


def mgu(w: dict[str, Tensor], cut: Tensor, x: Tensor, start: Tensor) -> Tensor:
    """Return the states (P, B, T, H) of P sets of cuts, rows of `cut`."""
    u = (~cut).to(x.dtype).T[:, :, None, None]  # 8 P 1 1
    h, states = start.expand(len(cut), *start.shape), []
    for x_t in x.unbind(1):
        f = torch.sigmoid(u[0] * (x_t @ w["xf"]) + u[1] * (h @ w["hf"]) + u[2] * w["bf"])
        c = torch.tanh(u[3] * (x_t @ w["xh"]) + u[4] * ((h * f) @ w["hh"]) + u[5] * w["bh"])
        h = u[6] * (1 - f) * h + u[7] * f * c
        states.append(h)
    return torch.stack(states, dim=2)


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
def expected() -> Tensor:
    wild = make("mgu")
    w = dict(wild.w.named_parameters())
    with torch.no_grad():
        return mgu(w, bits(8), *inputs(wild))


def test_every_set_of_cuts_computes_its_equation(
    cells: list[Cell | None], expected: Tensor
) -> None:
    for cell, states, cuts in zip(cells, expected, SETS, strict=True):
        if cell is not None:
            assert_close(outputs(cell), states, FINE, f"outputs of {cuts}")


def test_exactly_the_72_sets_with_zero_state_are_errors(
    cells: list[Cell | None], expected: Tensor
) -> None:
    zero = (expected.abs().amax((1, 2, 3)) == 0).tolist()
    assert [cell is None for cell in cells] == zero
    assert sum(zero) == 72


def test_configs_are_equal_exactly_if_functions_are_equal(
    cells: list[Cell | None], expected: Tensor
) -> None:
    reading = [i for i, cell in enumerate(cells) if cell is not None and not cell.input_blind]
    configs = [cells[i].config for i in reading]
    assert groups(expected[reading]) == [configs.index(config) for config in configs]
    assert (len(reading), len(set(configs))) == (124, 92)


def test_cuts_are_given_by_name_number_or_text() -> None:
    named = MGU.Config(cuts=["input_to_gate", "gate_bias"])
    assert named == MGU.Config(cuts=[0, 2]) == MGU.Config(cuts="0,2") == MGU.Config(cuts="2;0")


@pytest.mark.parametrize("value", [[8], "reset", -1])
def test_an_unknown_cut_is_an_error_that_lists_the_known_ones(value: object) -> None:
    with pytest.raises(ValueError, match=r"no cut .*; known: input_to_gate \(0\), "):
        MGU.Config(cuts=value)


def gradients(model: LanguageModel) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of a batch and its gradients."""
    value = loss(model, *batch(model.task, count=8))
    value.backward()
    return value.detach(), {name: p.grad for name, p in model.named_parameters()}


def test_four_cuts_give_the_mgru_in_loss_and_gradient() -> None:
    task = Task(vocab=5, length=6)
    cut = zoo.build(zoo.config("DLM46", width=4, cell={"cuts": [0, 2, 4, 5]}), task)
    wild = zoo.build(zoo.config("DLM47", width=4), task, seed=1)
    wild.load_state_dict(cut.state_dict())
    (ours, ours_grad), (theirs, theirs_grad) = gradients(cut), gradients(wild)
    assert_close(ours, theirs, SAME, "loss")
    assert ours_grad.keys() == theirs_grad.keys()
    for name, gradient in ours_grad.items():
        assert_close(gradient, theirs_grad[name], SAME, f"gradient of {name}")
