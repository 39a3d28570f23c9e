"""RNN, LSTM and GRU equal torch's layers in outputs and gradients."""

import pytest
import torch
from torch import Tensor, nn

from lmzoo.cells.base import Cell
from lmzoo.laws.support import assert_close
from tests.cells.support import inputs, make
from tests.tiny import FINE

LIBRARY = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def torch_layer(cell: Cell) -> nn.RNNBase:
    """Return torch's layer with the weights of the cell."""
    theirs = LIBRARY[cell.name](cell.width, cell.width, batch_first=True).double()
    with torch.no_grad():
        for name, weight in cell.w.named_parameters():
            getattr(theirs, f"{name}_l0").copy_(weight)
    return theirs


def run_layer(theirs: nn.RNNBase, x: Tensor, start: Tensor) -> Tensor:
    """Return the outputs of torch's layer; `start` concatenates its initial states."""
    parts = tuple(part[None].contiguous() for part in start.split(x.shape[-1], dim=-1))
    return theirs(x, parts if len(parts) > 1 else parts[0])[0]


@pytest.mark.parametrize("name", LIBRARY)
def test_outputs_and_gradients_equal_those_of_torch(name: str) -> None:
    cell = make(name, width=5, length=6)
    theirs = torch_layer(cell)
    (x, start), weight = inputs(cell, count=3), torch.randn(3, 6, 5, dtype=torch.float64)
    our_x, our_start = x.clone().requires_grad_(), start.clone().requires_grad_()
    their_x, their_start = x.clone().requires_grad_(), start.clone().requires_grad_()
    ours, expected = cell.scan(our_x, our_start), run_layer(theirs, their_x, their_start)
    assert_close(ours, expected, FINE, "outputs")
    (ours * weight).sum().backward()
    (expected * weight).sum().backward()
    assert_close(our_x.grad, their_x.grad, FINE, "gradient of the inputs")
    assert_close(our_start.grad, their_start.grad, FINE, "gradient of the initial state")
    parameters = dict(cell.w.named_parameters())
    assert len(parameters) == len(list(theirs.parameters()))
    for name_, parameter in parameters.items():
        assert_close(
            parameter.grad, getattr(theirs, f"{name_}_l0").grad, FINE, f"gradient of {name_}"
        )
