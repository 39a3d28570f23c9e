"""The hierarchical multiscale LSTM (S2)."""

import pytest
import torch
from torch import Tensor

from lmzoo.cells.stacked import HierarchicalMultiscaleLSTM
from lmzoo.laws.support import assert_close
from tests.cells.support import inputs, make, trace
from tests.tiny import FINE

H = 3


def states(
    cell: HierarchicalMultiscaleLSTM, x: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return h and c of every layer, (B, T, D, H), and z, (B, T, D-1)."""
    depth, stack = cell.config.depth, trace(cell, x, start)
    return torch.stack(stack[:depth], 2), torch.stack(stack[depth:-1], 2), stack[-1]


@pytest.mark.parametrize("slope", [1.0, 4.0])
def test_it_computes_its_equation_in_every_case(slope: float) -> None:
    cell = make("hm_lstm", depth=3, length=12, slope=slope)
    with torch.no_grad():
        for w in cell.layers[:-1]:
            w.bias[-1] = 0.0
    x, start = inputs(cell, count=4)
    h_all, c_all, z_all = states(cell, x, start)
    cases = set()
    for b in range(4):
        h, c = start[b].chunk(2)
        h, c, z = list(h.split(H)), list(c.split(H)), [0.0, 0.0, 0.0]
        for t in range(12):
            old, below, moved = list(h), x[b, t], 1.0
            for j, w in enumerate(cell.layers):
                s = w.own @ old[j] + w.bias
                s = s + w.below @ below if moved else s
                s = s + w.above @ old[j + 1] if z[j] else s
                i, f, g, o = s[: 4 * H].split(H)
                new = torch.sigmoid(i) * torch.tanh(g)
                case = "flush" if z[j] else "update" if moved else "copy"
                cases.add((j, case))
                if case != "copy":
                    c[j] = new if case == "flush" else torch.sigmoid(f) * c[j] + new
                    h[j] = torch.sigmoid(o) * torch.tanh(c[j])
                below = h[j]
                moved = z[j] = float(j < 2 and s[-1] > 0)
            assert_close(h_all[b, t], torch.stack(h), FINE, f"h at {t}")
            assert_close(c_all[b, t], torch.stack(c), FINE, f"c at {t}")
            assert z_all[b, t].tolist() == z[:2]
    middle = {(1, "flush"), (1, "update"), (1, "copy")}
    assert cases == {(0, "flush"), (0, "update"), *middle, (2, "update"), (2, "copy")}


def test_boundaries_are_bits_with_the_gradient_of_the_hard_sigmoid() -> None:
    s = torch.tensor([-3.0, -0.6, -0.1, 0.1, 0.6, 3.0], dtype=torch.float64, requires_grad=True)
    for slope in (1.0, 5.0):
        z = make("hm_lstm", slope=slope)._boundary(s)
        assert z.tolist() == [0, 0, 0, 1, 1, 1]
        inside = (slope * s.detach()).abs() < 1
        (gradient,) = torch.autograd.grad(z.sum(), s)
        assert_close(gradient, torch.where(inside, slope / 2, 0.0).double(), FINE, "gradient")
