"""Cells with several layers: hierarchical multiscale LSTM, gated feedback, grid LSTM (S2)."""

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.cells.stacked import GATES, Along, GridLSTM, HierarchicalMultiscaleLSTM, Squash
from lmzoo.contract import Task
from lmzoo.laws.tiny import assert_close
from lmzoo.train.pack_compatibility import reason_not_packable
from tests.cells.support import inputs, make, trace
from tests.tiny import FINE, assert_equal_double, tiny

H = 3


def states(
    cell: HierarchicalMultiscaleLSTM, x: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return h and c of every layer, (B, T, D, H), and z, (B, T, D-1)."""
    depth = cell.config.depth
    stack = trace(cell, x, start)
    return torch.stack(stack[:depth], 2), torch.stack(stack[depth:-1], 2), stack[-1]


@pytest.mark.parametrize("slope", [1.0, 4.0])
def test_hm_lstm_computes_its_equation_in_every_case(slope):
    cell = make("hm_lstm", depth=3, length=12, slope=slope)
    with torch.no_grad():
        for w in cell.layers[:-1]:
            w.bias[-1] = 0.0
    x, start = inputs(cell, count=4)
    h_all, c_all, z_all = states(cell, x, start)
    cases = set()
    for b in range(4):
        h, c = start[b].chunk(2)
        h = list(h.split(H))
        c = list(c.split(H))
        z = [0.0, 0.0, 0.0]
        for t in range(12):
            old = list(h)
            below = x[b, t]
            moved = 1.0
            for j, w in enumerate(cell.layers):
                s = w.own @ old[j] + w.bias
                if moved:
                    s = s + w.below @ below
                if z[j]:
                    s = s + w.above @ old[j + 1]
                i, f, g, o = s[: 4 * H].split(H)
                new = torch.sigmoid(i) * torch.tanh(g)
                if z[j]:
                    case = "flush"
                else:
                    case = "copy"
                    if moved:
                        case = "update"
                cases.add((j, case))
                if case != "copy":
                    if case == "flush":
                        c[j] = new
                    else:
                        c[j] = torch.sigmoid(f) * c[j] + new
                    h[j] = torch.sigmoid(o) * torch.tanh(c[j])
                below = h[j]
                moved = z[j] = float(j < 2 and s[-1] > 0)
            assert_close(h_all[b, t], torch.stack(h), FINE, f"h at {t}")
            assert_close(c_all[b, t], torch.stack(c), FINE, f"c at {t}")
            assert z_all[b, t].tolist() == z[:2]
    middle = {(1, "flush"), (1, "update"), (1, "copy")}
    assert cases == {(0, "flush"), (0, "update"), *middle, (2, "update"), (2, "copy")}


def test_boundaries_are_bits_with_the_gradient_of_the_hard_sigmoid():
    s = torch.tensor([-3.0, -0.6, -0.1, 0.1, 0.6, 3.0], dtype=torch.float64, requires_grad=True)
    for slope in (1.0, 5.0):
        z = make("hm_lstm", slope=slope)._boundary(s)
        assert z.tolist() == [0, 0, 0, 1, 1, 1]
        inside = (slope * s.detach()).abs() < 1
        (gradient,) = torch.autograd.grad(z.sum(), s)
        assert_equal_double(gradient, torch.where(inside, slope / 2, 0.0).double())


ANNEALED = {"name": "hm_lstm", "anneal": 4}


def test_the_slope_grows_linearly_to_five():
    cell = make("hm_lstm", anneal=4).train()
    x, start = inputs(cell)
    slopes = []
    for _ in range(6):
        slopes.append(float(cell.slope))
        cell.scan(x, start)
    assert slopes == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]
    from_three = make("hm_lstm", anneal=4, slope=3.0)
    from_three.scan(x, start)
    assert float(from_three.slope) == 3.5


def test_only_training_scans_change_the_slope():
    cell = make("hm_lstm", anneal=4)
    x, start = inputs(cell)
    cell.eval().scan(x, start)
    with torch.no_grad():
        cell.train().scan(x, start)
    assert float(cell.slope) == 1.0
    assert float(make("hm_lstm", slope=2.0).slope) == 2.0
    assert "scans" not in make("hm_lstm").state_dict()
    assert "scans" in cell.state_dict()  # so that a resumed training goes on


def test_runs_with_an_annealed_slope_are_not_packed():
    assert "running statistics" in reason_not_packable(tiny("hm_lstm", cell=ANNEALED))
    assert reason_not_packable(tiny("hm_lstm")) == ""


def test_a_slope_that_cannot_grow_is_an_error():
    with pytest.raises(UserError, match="slope=5 cannot grow to 5 in anneal=3"):
        CELLS.parse({"name": "hm_lstm", "slope": 5.0, "anneal": 3})
    assert zoo.build(zoo.config("hm_lstm", cell=ANNEALED), Task(vocab=5, length=4)).cell.scans == 0


@pytest.mark.parametrize("unit", GATES)
def test_gated_feedback_computes_its_equation(unit):
    cell = make("gated_feedback", unit=unit, depth=2)
    w = cell.w
    (x, start) = inputs(cell)
    h = list(start.split(H, dim=-1)[:2])
    c = list(start.split(H, dim=-1)[2:])
    for t in range(cell.length):
        below = x[:, t]
        before = torch.cat(h, dim=-1)
        old = list(h)
        for j in range(2):
            reset = torch.sigmoid(below @ w.global_below[j].T + before @ w.global_before[j].T)
            s = sum(reset[:, i : i + 1] * (old[i] @ w.u[j, i].T) for i in range(2))
            gates = {}
            if GATES[unit]:
                z = below @ w.gates_below[j].T + old[j] @ w.gates_before[j].T + w.gates_bias[j]
                gates = dict(zip(GATES[unit], torch.sigmoid(z).split(H, dim=-1), strict=True))
            n = torch.tanh(below @ w.w[j].T + w.b[j] + gates.get("r", 1.0) * s)
            if "z" in gates:
                h[j] = gates["z"] * old[j] + (1 - gates["z"]) * n
            else:
                h[j] = n
            if "f" in gates:
                c[j] = gates["f"] * c[j] + gates["i"] * n
                h[j] = gates["o"] * torch.tanh(c[j])
            below = h[j]
        assert_close(cell.scan(x, start)[:, t], below, FINE, f"h at {t}")


def grid_outputs(cell: GridLSTM, x: Tensor, start: Tensor) -> Tensor:
    """Compute the outputs of one sequence, block by block and gate by gate."""

    def gates(incoming: Tensor, m: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        u, f, c, o = (weight @ incoming + bias).split(H)
        m = f.sigmoid() * m + u.sigmoid() * c.tanh()
        inside = cell.config.squash is Squash.INSIDE
        return ((o.sigmoid() * m).tanh() if inside else o.sigmoid() * m.tanh()), m

    depth = cell.config.depth
    along = cell.config.along
    tops = []
    side = [list(part) for part in start.unflatten(0, (2, depth, H))]
    for token in x:
        up = (cell.enter.weight @ token).split(H)
        for k in range(depth):
            w = cell.blocks[0 if cell.config.tied else k]
            old = torch.cat([side[0][k], up[0]])
            side[0][k], side[1][k] = gates(old, side[1][k], w.time, w.time_bias)
            read = old
            if cell.config.priority:
                read = torch.cat([side[0][k], up[0]])
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
def test_a_grid_computes_its_equation(along, squash, *, tied, priority):
    cell = make("grid_lstm", depth=3, along=along, squash=squash, tied=tied, priority=priority)
    x, start = inputs(cell)
    expected = torch.stack([grid_outputs(cell, *pair) for pair in zip(x, start, strict=True)])
    assert_equal_double(cell.scan(x, start), expected)
