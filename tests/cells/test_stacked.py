"""Cells with several layers: hierarchical multiscale LSTM, gated feedback, grid LSTM (S2)."""

import pytest
import torch
from torch import Tensor

from lmzoo.cells.stacked import GATES, Along, GridLSTM, HierarchicalMultiscaleLSTM, Squash
from lmzoo.train.pack_compatibility import reason_not_packable
from tests.cells.support import inputs, make, trace
from tests.tiny import assert_equal_double, tiny

H = 3


def states(cell: HierarchicalMultiscaleLSTM, x: Tensor, start: Tensor) -> tuple[Tensor, ...]:
    """Return h and c of every layer, (B, T, D, H), and z, (B, T, D-1)."""
    depth = cell.config.depth
    parts = trace(cell, x, start)
    h = torch.stack(parts[:depth], 2)
    c = torch.stack(parts[depth:-1], 2)
    return h, c, parts[-1]


class Layers:
    """The layers of a hierarchical multiscale LSTM for one sequence, and the cases that occur."""

    def __init__(self, cell: HierarchicalMultiscaleLSTM, start: Tensor):
        h, c = start.chunk(2)
        self.weights = cell.layers
        self.h = list(h.split(H))
        self.c = list(c.split(H))
        self.z = [0.0, 0.0, 0.0]
        self.cases: set[tuple[int, str]] = set()

    def read(self, token: Tensor):
        """Update every layer; a layer moves if the one below found a boundary."""
        old = list(self.h)
        below = token
        moved = 1.0
        for j, w in enumerate(self.weights):
            s = w.own @ old[j] + w.bias
            if moved:
                s = s + w.below @ below
            if self.z[j]:
                s = s + w.above @ old[j + 1]
            self.update(j, s, moved=bool(moved))
            below = self.h[j]
            moved = float(j < 2 and s[-1] > 0)
            self.z[j] = moved

    def update(self, j: int, s: Tensor, *, moved: bool):
        i, f, g, o = s[: 4 * H].split(H)
        new = torch.sigmoid(i) * torch.tanh(g)
        if self.z[j]:
            case = "flush"
            self.c[j] = new
        elif moved:
            case = "update"
            self.c[j] = torch.sigmoid(f) * self.c[j] + new
        else:
            case = "copy"
        if case != "copy":
            self.h[j] = torch.sigmoid(o) * torch.tanh(self.c[j])
        self.cases.add((j, case))


ALL_CASES = {
    (0, "flush"),
    (0, "update"),
    (1, "flush"),
    (1, "update"),
    (1, "copy"),
    (2, "update"),
    (2, "copy"),
}
"""The first layer reads every token, so it copies nothing; the last one has no boundary."""


@pytest.mark.parametrize("slope", [1.0, 4.0])
def test_hm_lstm_computes_its_equation_in_every_case(slope):
    cell = make("hm_lstm", depth=3, length=12, slope=slope)
    with torch.no_grad():
        for w in cell.layers[:-1]:
            w.bias[-1] = 0.0  # about as many boundaries as none
    x, start = inputs(cell, count=4)
    h, c, z = states(cell, x, start)
    cases = set()
    for b in range(4):
        layers = Layers(cell, start[b])
        for t in range(12):
            layers.read(x[b, t])
            assert_equal_double(h[b, t], torch.stack(layers.h))
            assert_equal_double(c[b, t], torch.stack(layers.c))
            assert z[b, t].tolist() == layers.z[:2]
        cases |= layers.cases
    assert cases == ALL_CASES


@pytest.mark.parametrize("slope", [1.0, 5.0])
def test_boundaries_are_bits_with_the_gradient_of_the_hard_sigmoid(slope):
    s = torch.tensor([-3.0, -0.6, -0.1, 0.1, 0.6, 3.0], dtype=torch.float64, requires_grad=True)
    z = make("hm_lstm", slope=slope)._boundary(s)
    assert z.tolist() == [0, 0, 0, 1, 1, 1]
    (gradient,) = torch.autograd.grad(z.sum(), s)
    inside = (slope * s).abs() < 1
    expected = torch.where(inside, slope / 2, 0.0)
    assert_equal_double(gradient, expected.double())


ANNEALED = {"name": "hm_lstm", "anneal": 4}


def test_the_slope_grows_linearly_to_five():
    cell = make("hm_lstm", anneal=4).train()
    x, start = inputs(cell)
    slopes = []
    for _ in range(6):
        slopes.append(float(cell.slope))
        cell.scan(x, start)
    assert slopes == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]


def test_the_slope_grows_from_its_first_value():
    cell = make("hm_lstm", anneal=4, slope=3.0)
    x, start = inputs(cell)
    cell.scan(x, start)
    assert float(cell.slope) == 3.5


def test_only_training_scans_change_the_slope():
    cell = make("hm_lstm", anneal=4)
    x, start = inputs(cell)
    cell.eval().scan(x, start)
    with torch.no_grad():
        cell.train().scan(x, start)
    assert float(cell.slope) == 1.0


def test_a_checkpoint_has_the_scans_of_an_annealed_slope():
    """So that a resumed training goes on."""
    assert "scans" in make("hm_lstm", anneal=4).state_dict()
    assert "scans" not in make("hm_lstm").state_dict()


def test_runs_with_an_annealed_slope_are_not_packed():
    annealed = tiny("hm_lstm", cell={"name": "hm_lstm", "anneal": 4})
    assert "running statistics" in reason_not_packable(annealed)
    assert reason_not_packable(tiny("hm_lstm")) == ""


@pytest.mark.parametrize("unit", GATES)
def test_gated_feedback_computes_its_equation(unit):
    cell = make("gated_feedback", unit=unit, depth=2)
    w = cell.w
    names = GATES[unit]
    x, start = inputs(cell)
    parts = start.split(H, dim=-1)
    h = list(parts[:2])
    c = list(parts[2:])
    outputs = []
    for token in x.unbind(1):
        below = token
        old = list(h)
        before = torch.cat(old, dim=-1)
        for j in range(2):
            reset_logits = below @ w.global_below[j].T + before @ w.global_before[j].T
            reset = torch.sigmoid(reset_logits)
            from_first = reset[:, :1] * (old[0] @ w.u[j, 0].T)
            from_second = reset[:, 1:] * (old[1] @ w.u[j, 1].T)
            feedback = from_first + from_second
            gates = {}
            if names:
                logits = below @ w.gates_below[j].T + old[j] @ w.gates_before[j].T
                values = torch.sigmoid(logits + w.gates_bias[j])
                gates = dict(zip(names, values.split(H, dim=-1), strict=True))
            if "r" in gates:
                feedback = gates["r"] * feedback
            n = torch.tanh(below @ w.w[j].T + w.b[j] + feedback)
            h[j] = n
            if "z" in gates:
                h[j] = torch.lerp(n, old[j], gates["z"])
            if "f" in gates:
                c[j] = gates["f"] * c[j] + gates["i"] * n
                h[j] = gates["o"] * torch.tanh(c[j])
            below = h[j]
        outputs.append(below)
    assert_equal_double(cell.scan(x, start), torch.stack(outputs, dim=1))


def lstm_side(cell: GridLSTM, logits: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next h and m of one side of a block."""
    u, f, c, o = logits.split(H)
    m = f.sigmoid() * m + u.sigmoid() * c.tanh()
    if cell.config.squash is Squash.INSIDE:
        return (o.sigmoid() * m).tanh(), m
    return o.sigmoid() * m.tanh(), m


def grid_outputs(cell: GridLSTM, x: Tensor, start: Tensor) -> Tensor:
    """Compute the outputs of one sequence, block by block and gate by gate."""
    depth = cell.config.depth
    along = cell.config.along
    h, m = (list(part) for part in start.unflatten(0, (2, depth, H)))
    tops = []
    for token in x:
        up, *memory_up = (cell.enter.weight @ token).split(H)
        for k in range(depth):
            # Tied layers are one block.
            w = cell.blocks[k % len(cell.blocks)]
            read = torch.cat([h[k], up])
            h[k], m[k] = lstm_side(cell, w.time @ read + w.time_bias, m[k])
            if cell.config.priority:
                read = torch.cat([h[k], up])
            if along is Along.LSTM:
                logits = w.depth @ read + w.depth_bias
                up, memory_up[0] = lstm_side(cell, logits, memory_up[0])
            else:
                up = w.depth @ read
            if along is Along.TANH:
                up = up.tanh()
        tops.append(up)
    return torch.stack(tops)


@pytest.mark.parametrize("along", Along)
@pytest.mark.parametrize("squash", Squash)
@pytest.mark.parametrize("option", ["none", "tied", "priority"])
def test_a_grid_computes_its_equation(along, squash, option):
    fields = {"tied": option == "tied", "priority": option == "priority"}
    cell = make("grid_lstm", depth=3, along=along, squash=squash, **fields)
    x, start = inputs(cell)
    outputs = cell.scan(x, start)
    for b in range(len(x)):
        assert_equal_double(outputs[b], grid_outputs(cell, x[b], start[b]))
