"""The grid LSTM, and the LSTMs that are special cases (S2)."""

import pytest
import torch
from torch import Tensor

from lmzoo.cells.stacked import Along, GridLSTM, Squash
from lmzoo.laws.support import assert_close
from tests.cells.support import inputs, make, outputs
from tests.tiny import FINE

H = 3


def test_an_identity_depth_dimension_leaves_an_lstm() -> None:
    cell = make("grid_lstm", depth=1, along="identity", squash="outside", priority=True)
    plain, (block,) = make("lstm"), cell.blocks
    with torch.no_grad():
        cell.enter.weight.copy_(torch.eye(H))
        block.depth.copy_(torch.eye(H, 2 * H))  # the new h of time, and nothing of x
        plain.w.weight_hh.copy_(block.time[:, :H])
        plain.w.weight_ih.copy_(block.time[:, H:])
        plain.w.bias_ih.copy_(block.time_bias)
        plain.w.bias_hh.zero_()
    assert_close(outputs(cell), outputs(plain), FINE, "outputs")


def reference(cell: GridLSTM, x: Tensor, start: Tensor) -> Tensor:
    """Compute the outputs of one sequence, block by block and gate by gate."""

    def gates(incoming: Tensor, m: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        u, f, c, o = (weight @ incoming + bias).split(H)
        m = f.sigmoid() * m + u.sigmoid() * c.tanh()
        inside = cell.config.squash is Squash.INSIDE
        return ((o.sigmoid() * m).tanh() if inside else o.sigmoid() * m.tanh()), m

    depth, along, tops = cell.config.depth, cell.config.along, []
    side = [list(part) for part in start.unflatten(0, (2, depth, H))]
    for token in x:
        up = (cell.enter.weight @ token).split(H)
        for k in range(depth):
            w = cell.blocks[0 if cell.config.tied else k]
            old = torch.cat([side[0][k], up[0]])
            side[0][k], side[1][k] = gates(old, side[1][k], w.time, w.time_bias)
            read = torch.cat([side[0][k], up[0]]) if cell.config.priority else old
            if along is Along.LSTM:
                up = gates(read, up[1], w.depth, w.depth_bias)
            else:
                v = w.depth @ read
                up = (v.tanh() if along is Along.TANH else v,)
        tops.append(up[0])
    return torch.stack(tops)


@pytest.mark.parametrize("along", Along)
@pytest.mark.parametrize("squash", Squash)
@pytest.mark.parametrize(("tied", "priority"), [(False, False), (True, False), (False, True)])
def test_it_computes_its_equation(
    along: Along, squash: Squash, *, tied: bool, priority: bool
) -> None:
    cell = make("grid_lstm", depth=3, along=along, squash=squash, tied=tied, priority=priority)
    x, start = inputs(cell)
    expected = torch.stack([reference(cell, *pair) for pair in zip(x, start, strict=True)])
    assert_close(cell.scan(x, start), expected, FINE, "outputs")
