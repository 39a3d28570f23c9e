"""The hierarchical multiscale LSTM (S2)."""

import pytest
import torch
from torch import Tensor

from lmzoo.cells.hm_lstm import HierarchicalMultiscaleLSTM
from tests.cells.support import inputs, make, trace
from tests.laws.support import assert_close
from tests.tiny import FINE

H = 3


def states(
    cell: HierarchicalMultiscaleLSTM, x: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return h and c of every layer, (B, T, D, H), and z, (B, T, D-1)."""
    depth, stack = cell.config.depth, trace(cell, x, start)
    return torch.stack(stack[:depth], 2), torch.stack(stack[depth:-1], 2), stack[-1]


def with_boundary_bias(bias: float, depth: int = 3) -> HierarchicalMultiscaleLSTM:
    """Return a cell whose boundary detectors have this bias."""
    cell = make("hm_lstm", depth=depth, length=5)
    with torch.no_grad():
        for w in cell.layers[:-1]:
            w.bias[-1] = bias
    return cell


def test_one_layer_is_an_lstm() -> None:
    cell, plain = make("hm_lstm", depth=1), make("lstm")
    (w,) = cell.layers
    with torch.no_grad():
        plain.w.weight_ih.copy_(w.below)
        plain.w.weight_hh.copy_(w.own)
        plain.w.bias_ih.copy_(w.bias)
        plain.w.bias_hh.zero_()
    x, start = inputs(cell)
    h = states(cell, x, start)[0][:, :, 0]
    assert_close(h, plain.scan(x, start), FINE, "h")
    gate = torch.sigmoid(h @ cell.out.gate.T)
    assert_close(cell.scan(x, start), torch.relu(gate * (h @ cell.out.embed[0].T)), FINE, "y")


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


def test_the_output_is_the_gated_sum_of_all_layers() -> None:
    cell = make("hm_lstm", depth=2)
    x, start = inputs(cell)
    h = states(cell, x, start)[0]
    gate = torch.sigmoid(torch.einsum("btn,dn->btd", h.flatten(2), cell.out.gate))
    total = sum(gate[..., d, None] * (h[:, :, d] @ cell.out.embed[d].T) for d in range(2))
    assert_close(cell.scan(x, start), torch.relu(total), FINE, "y")


def test_without_boundaries_upper_layers_keep_their_initial_state() -> None:
    cell = with_boundary_bias(-100.0)
    x, start = inputs(cell)
    h, c, z = states(cell, x, start)
    first_h, first_c = start.unflatten(1, (2, 3, H)).unbind(1)
    assert (z == 0).all()
    assert_close(h[:, :, 1:], first_h[:, None, 1:].expand(-1, 5, -1, -1), 0, "h")
    assert_close(c[:, :, 1:], first_c[:, None, 1:].expand(-1, 5, -1, -1), 0, "c")
    assert not h[:, 0, 0].allclose(first_h[:, 0])


def test_with_boundaries_everywhere_no_lower_cell_remembers() -> None:
    cell = with_boundary_bias(100.0)
    x, start = inputs(cell)
    state = cell.step(x[:, 0], cell.initial_state(start))[1]
    assert (state[-1] == 1).all()
    changed = (*state[:3], *(c + 1 for c in state[3:6]), state[-1])
    result, expected = (cell.step(x[:, 1], s)[1] for s in (changed, state))
    for j in range(2):
        assert_close(result[j], expected[j], 0, "h")
        assert_close(result[3 + j], expected[3 + j], 0, "c")
    assert not result[5].allclose(expected[5])  # the top layer has no boundary


def test_boundaries_are_bits_with_the_gradient_of_the_hard_sigmoid() -> None:
    s = torch.tensor([-3.0, -0.6, -0.1, 0.1, 0.6, 3.0], dtype=torch.float64, requires_grad=True)
    for slope in (1.0, 5.0):
        z = make("hm_lstm", slope=slope)._boundary(s)
        assert z.tolist() == [0, 0, 0, 1, 1, 1]
        inside = (slope * s.detach()).abs() < 1
        (gradient,) = torch.autograd.grad(z.sum(), s)
        assert_close(gradient, torch.where(inside, slope / 2, 0.0).double(), FINE, "gradient")
