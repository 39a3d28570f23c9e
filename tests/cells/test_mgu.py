"""Properties of particular cuts of the minimal gated unit (MGU)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo import zoo
from lmzoo.contract import LanguageModel, Task
from tests.cells.mgu_equations import gru_reset_before
from tests.cells.support import inputs, make, outputs
from tests.laws.support import assert_close, loss
from tests.tiny import FINE, SAME, batch, quick


def test_the_wild_type_is_a_gru_with_reset_before_and_one_gate() -> None:
    cell = make("mgu")
    w, (x, start) = dict(cell.w.named_parameters()), inputs(cell)
    assert_close(
        cell.scan(x, start), gru_reset_before(w, x, start, reset_is_update=True), FINE, "tied GRU"
    )
    untied = gru_reset_before(w, x, start, reset_is_update=False)
    assert (cell.scan(x, start) - untied).abs().max() > 1e-3


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


def test_cutting_the_whole_candidate_equals_cutting_write() -> None:
    assert_close(
        outputs(make("mgu", cuts=[3, 2, 4, 5])), outputs(make("mgu", cuts=[2, 7])), 0, "outputs"
    )


def test_a_gate_without_terms_is_one_half() -> None:
    cell = make("mgu", cuts=[0, 1, 2])
    x, h = inputs(cell)
    for t in range(cell.length):
        h = h / 2 + torch.tanh(x[:, t] @ cell.w.xh + (h / 2) @ cell.w.hh + cell.w.bh) / 2
    assert_close(cell.scan(*inputs(cell))[:, -1], h, FINE, "last state")


def test_without_gate_terms_and_state_it_is_an_exponential_average() -> None:
    cell = make("mgu", cuts=[0, 1, 2, 4, 5])
    x, h = inputs(cell)
    for t in range(cell.length):
        h = h / 2 + torch.tanh(x[:, t] @ cell.w.xh) / 2
    assert_close(cell.scan(*inputs(cell))[:, -1], h, FINE, "exponential average")


def nonlinearity(cuts: list[int], share: float) -> Tensor:
    """Return how far outputs are from affine in the initial state, between two states."""
    cell = make("mgu", cuts=cuts)
    x, a = inputs(cell)
    b = inputs(cell, seed=2)[1] * 3 - 1
    mixed = share * cell.scan(x, a) + (1 - share) * cell.scan(x, b)
    return (cell.scan(x, share * a + (1 - share) * b) - mixed).abs().max()


@quick
@given(share=st.floats(-2, 2))
def test_without_state_in_gate_and_candidate_it_is_affine_in_the_initial_state(
    share: float,
) -> None:
    assert nonlinearity([1, 4], share) < FINE


@pytest.mark.parametrize("cuts", [[], [1], [4]])
def test_either_path_of_the_state_alone_is_nonlinear(cuts: list[int]) -> None:
    assert nonlinearity(cuts, 0.5) > 1e-4


def memoryless(cuts: list[int]) -> bool:
    """Return whether each output depends only on the input at its position."""
    cell = make("mgu", cuts=cuts)
    x, start = inputs(cell)
    alone = [cell.scan(x[:, t : t + 1], start + t) for t in range(cell.length)]
    return torch.cat(alone, 1).allclose(cell.scan(x, start), rtol=0, atol=FINE)


def test_only_without_all_three_state_paths_it_is_memoryless() -> None:
    assert memoryless([1, 4, 6])
    assert not any(memoryless(cuts) for cuts in ([1, 4], [1, 6], [4, 6]))


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
