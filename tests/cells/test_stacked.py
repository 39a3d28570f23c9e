"""Cells with several layers: hierarchical multiscale LSTM, gated feedback, grid LSTM (S2)."""

import torch

from lmzoo.cells.stacked import GATES, Along, Squash
from lmzoo.train.pack_compatibility import reason_not_packable
from tests.cases import parametrize
from tests.cells.support import inputs, make, trace
from tests.tiny import assert_equal_double, tiny

H = 3


def states(cell, x, start):
    """Return h and c of every layer, (B, T, D, H), and z, (B, T, D-1)."""
    depth = cell.config.depth
    parts = trace(cell, x, start)
    h = torch.stack(parts[:depth], 2)
    c = torch.stack(parts[depth:-1], 2)
    return h, c, parts[-1]


class Layers:
    """The layers of a hierarchical multiscale LSTM for one sequence, and the cases that occur."""

    def __init__(self, cell, start):
        h, c = start.chunk(2)
        self.weights = cell.layers
        self.h = list(h.split(H))
        self.c = list(c.split(H))
        self.z = [0.0, 0.0, 0.0]
        self.cases = set()

    def read(self, token):
        """Update every layer; a layer moves if the one below found a boundary."""
        old = list(self.h)
        # The first layer reads the token.
        below = token
        moved = True
        for j, w in enumerate(self.weights):
            s = w.own @ old[j] + w.bias
            if moved:
                s = s + w.below @ below
            # After a boundary, a layer reads the one above.
            if self.z[j]:
                above = old[j + 1]
                s = s + w.above @ above
            self.update(j, s, moved=moved)
            below = self.h[j]
            # The last layer has no boundary.
            moved = j < 2
            if moved:
                moved = bool(s[-1] > 0)
            self.z[j] = moved

    def update(self, j, s, *, moved):
        gates = s[: 4 * H]
        i, f, g, o = gates.split(H)
        new = torch.sigmoid(i) * torch.tanh(g)
        if self.z[j]:
            case = "flush"
            self.c[j] = new
        elif moved:
            case = "update"
            kept = torch.sigmoid(f) * self.c[j]
            self.c[j] = kept + new
        else:
            case = "copy"
        if case != "copy":
            squashed = torch.tanh(self.c[j])
            self.h[j] = torch.sigmoid(o) * squashed
        self.cases.add((j, case))


ALL_CASES = {(0, "flush"), (0, "update")}
ALL_CASES |= {(1, case) for case in ("flush", "update", "copy")}
ALL_CASES |= {(2, "update"), (2, "copy")}
"""The first layer reads every token, so it copies nothing; the last one has no boundary."""


@parametrize("slope", [1.0, 4.0])
def test_hm_lstm_computes_its_equation_in_every_case(slope):
    # Long enough that every case occurs.
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
            actual = h[b, t]
            expected = torch.stack(layers.h)
            assert_equal_double(actual, expected)
            actual = c[b, t]
            expected = torch.stack(layers.c)
            assert_equal_double(actual, expected)
            found = z[b, t].tolist()
            assert found == layers.z[:2]
        cases |= layers.cases
    assert cases == ALL_CASES


@parametrize("slope", [1.0, 5.0])
def test_boundaries_are_bits_with_the_gradient_of_the_hard_sigmoid(slope):
    inputs = [-3.0, -0.6, -0.1, 0.1, 0.6, 3.0]
    s = torch.tensor(inputs).double().requires_grad_()
    cell = make("hm_lstm", slope=slope)
    z = cell._boundary(s)
    total = z.sum()
    assert z.tolist() == [0, 0, 0, 1, 1, 1]
    (gradient,) = torch.autograd.grad(total, s)
    inside = (slope * s).abs() < 1
    # The hard sigmoid has the slope a/2.
    expected = torch.where(inside, slope / 2, 0.0)
    assert_equal_double(gradient, expected.double())


def annealed(**fields):
    """Return a cell whose slope grows in four scans."""
    return make("hm_lstm", anneal=4, **fields)


def test_the_slope_grows_linearly_to_five():
    cell = annealed().train()
    x, start = inputs(cell)
    slopes = []
    # Two scans after the end of the growth.
    for _ in range(6):
        slopes.append(float(cell.slope))
        cell.scan(x, start)
    assert slopes == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]


def test_the_slope_grows_from_its_first_value():
    cell = annealed(slope=3.0)
    x, start = inputs(cell)
    cell.scan(x, start)
    # A quarter of the way from 3 to 5.
    assert float(cell.slope) == 3.5


def test_only_training_scans_change_the_slope():
    cell = annealed()
    x, start = inputs(cell)
    cell.eval().scan(x, start)
    with torch.no_grad():
        cell.train().scan(x, start)
    assert float(cell.slope) == 1.0


def test_a_checkpoint_has_the_scans_of_an_annealed_slope():
    """So that a resumed training goes on."""
    assert "scans" in annealed().state_dict()
    assert "scans" not in make("hm_lstm").state_dict()


def test_runs_with_an_annealed_slope_are_not_packed():
    cell = {"name": "hm_lstm", "anneal": 4}
    reason = reason_not_packable(tiny("hm_lstm", cell=cell))
    assert "running statistics" in reason
    assert reason_not_packable(tiny("hm_lstm")) == ""


def feedback_of(w, j, below, old):
    """Return what layer j reads of the last states of both layers."""
    before = torch.cat(old, dim=-1)
    from_below = below @ w.global_below[j].T
    from_before = before @ w.global_before[j].T
    reset = torch.sigmoid(from_below + from_before)
    # Every layer has a gate of its own to every other one.
    first = old[0] @ w.u[j, 0].T
    second = old[1] @ w.u[j, 1].T
    feedback = reset[:, :1] * first
    return feedback + reset[:, 1:] * second


@parametrize("unit", GATES)
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
        for j in range(2):
            feedback = feedback_of(w, j, below, old)
            gates = {}
            if names:
                from_below = below @ w.gates_below[j].T
                from_before = old[j] @ w.gates_before[j].T
                logits = from_below + from_before + w.gates_bias[j]
                values = torch.sigmoid(logits)
                values = values.split(H, dim=-1)
                gates = dict(zip(names, values, strict=True))
            if "r" in gates:
                feedback = gates["r"] * feedback
            read = below @ w.w[j].T
            read = read + w.b[j]
            n = torch.tanh(read + feedback)
            h[j] = n
            if "z" in gates:
                kept = gates["z"]
                h[j] = torch.lerp(n, old[j], kept)
            if "f" in gates:
                kept = gates["f"] * c[j]
                c[j] = kept + gates["i"] * n
                squashed = torch.tanh(c[j])
                h[j] = gates["o"] * squashed
            below = h[j]
        outputs.append(below)
    actual = cell.scan(x, start)
    expected = torch.stack(outputs, dim=1)
    assert_equal_double(actual, expected)


def lstm_side(cell, logits, m):
    """Return the next h and m of one side of a block."""
    u, f, c, o = logits.split(H)
    m = f.sigmoid() * m
    m = m + u.sigmoid() * c.tanh()
    opened = o.sigmoid()
    if cell.config.squash is Squash.INSIDE:
        return (opened * m).tanh(), m
    return opened * m.tanh(), m


def grid_outputs(cell, x, start):
    """Compute the outputs of one sequence, block by block and gate by gate."""
    depth = cell.config.depth
    along = cell.config.along
    parts = start.unflatten(0, (2, depth, H))
    h, m = (list(part) for part in parts)
    tops = []
    for token in x:
        # An LSTM along the depth has a memory of its own.
        entered = cell.enter.weight @ token
        up, *memory_up = entered.split(H)
        for k in range(depth):
            # Tied layers are one block.
            number = k % len(cell.blocks)
            w = cell.blocks[number]
            # Both sides of a block read the same two vectors.
            read = torch.cat([h[k], up])
            logits = w.time @ read + w.time_bias
            h[k], m[k] = lstm_side(cell, logits, m[k])
            # The depth reads the new state of time.
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


@parametrize("along", Along)
@parametrize("squash", Squash)
@parametrize("option", ["none", "tied", "priority"])
def test_a_grid_computes_its_equation(along, squash, option):
    fields = {"tied": option == "tied", "priority": option == "priority"}
    fields |= {"along": along, "squash": squash}
    cell = make("grid_lstm", depth=3, **fields)
    x, start = inputs(cell)
    outputs = cell.scan(x, start)
    for b in range(len(x)):
        expected = grid_outputs(cell, x[b], start[b])
        assert_equal_double(outputs[b], expected)
