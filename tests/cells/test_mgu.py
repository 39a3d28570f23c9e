"""All 256 sets of cuts of the MGU against its equations."""

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.base import Cell
from lmzoo.cells.mgu import MGU, Cut
from lmzoo.contract import LanguageModel, Task
from tests.cells.support import bits, groups, inputs, make, outputs, subsets
from tests.laws.support import assert_close, loss
from tests.tiny import FINE, SAME, batch

SETS = subsets(8)
PATHS = {"xf": 0, "hf": 1, "bf": 2, "xh": 3, "hh": 4, "bh": 5}


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


def blind() -> Tensor:
    """Return for every set of cuts whether its states ignore the inputs, by the equations."""
    wild = make("mgu")
    w = dict(wild.w.named_parameters())
    (x, start), (other, _) = inputs(wild), inputs(wild, seed=2)
    with torch.no_grad():
        difference = mgu(w, bits(8), x, start) - mgu(w, bits(8), other, start)
    return difference.abs().amax((1, 2, 3)) < FINE


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
    cells: list[Cell | None], expected: Tensor
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


def test_the_wild_type_is_not_torchs_gru_with_tied_gates() -> None:
    """In torch z = 1 keeps the state, so z = 1 − f, and r multiplies the product W_hn h."""
    mgu, gru = make("mgu"), make("gru")
    w, (x, start) = mgu.w, inputs(mgu)
    with torch.no_grad():
        gru.w.weight_ih.copy_(torch.cat([w.xf.T, -w.xf.T, w.xh.T]))
        gru.w.weight_hh.copy_(torch.cat([w.hf.T, -w.hf.T, w.hh.T]))
        gru.w.bias_ih.copy_(torch.cat([w.bf, -w.bf, w.bh]))
        gru.w.bias_hh.zero_()
        mgu_cut = make("mgu", cuts=[4])
        assert (mgu.scan(x, start) - gru.scan(x, start)).abs().max() > 1e-3
        # Without the reset path they are equal: it is the only difference.
        gru.w.weight_hh[-3:] = 0
        assert_close(gru.scan(x, start), mgu_cut.scan(x, start), FINE, "without the reset path")


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
