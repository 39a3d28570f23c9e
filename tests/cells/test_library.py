"""RNN, LSTM and GRU are torch's own, in outputs and in gradients."""

import pytest
import torch
from torch import Tensor, nn

from lmzoo.cells.base import Cell
from tests.cells.run import inputs, make
from tests.laws.support import assert_close
from tests.tiny import FINE

LIBRARY = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def library(cell: Cell) -> nn.RNNBase:
    """Torch's layer with the cell's weights."""
    theirs = LIBRARY[cell.name](cell.width, cell.width, batch_first=True).double()
    with torch.no_grad():
        for name, weight in cell.w.named_parameters():
            getattr(theirs, f"{name}_l0").copy_(weight)
    return theirs


def unrolled(theirs: nn.RNNBase, x: Tensor, start: Tensor) -> Tensor:
    parts = tuple(part[None].contiguous() for part in start.split(x.shape[-1], dim=-1))
    return theirs(x, parts if len(parts) > 1 else parts[0])[0]


@pytest.mark.parametrize("name", LIBRARY)
def test_outputs_and_gradients_are_the_librarys(name: str) -> None:
    cell = make(name, width=5, length=6)
    theirs = library(cell)
    (x, start), weight = inputs(cell, count=3), torch.randn(3, 6, 5, dtype=torch.float64)
    mine, start_too = (x.clone().requires_grad_(), start.clone().requires_grad_())
    other, other_start = (x.clone().requires_grad_(), start.clone().requires_grad_())
    ours, expected = cell.scan(mine, start_too), unrolled(theirs, other, other_start)
    assert_close(ours, expected, FINE, "outputs")
    (ours * weight).sum().backward()
    (expected * weight).sum().backward()
    assert_close(mine.grad, other.grad, FINE, "gradient at the inputs")
    assert_close(start_too.grad, other_start.grad, FINE, "gradient at the start")
    found = dict(cell.w.named_parameters())
    assert len(found) == len(list(theirs.parameters()))
    for name_, parameter in found.items():
        assert_close(
            parameter.grad, getattr(theirs, f"{name_}_l0").grad, FINE, f"gradient of {name_}"
        )
