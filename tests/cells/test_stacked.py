"""Cells with several layers: hierarchical multiscale LSTM, gated feedback, grid LSTM (S2)."""

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell
from lmzoo.cells.stacked import Along, GatedFeedback, GridLSTM, HierarchicalMultiscaleLSTM, Squash
from lmzoo.contract import Task
from lmzoo.data.corpus import open_corpus
from lmzoo.laws.support import assert_close
from lmzoo.train.pack_compatibility import reason_not_packable
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit
from tests.cells.support import inputs, make, outputs, trace
from tests.tiny import FINE, tiny

H = 3


def states(
    cell: HierarchicalMultiscaleLSTM, x: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return h and c of every layer, (B, T, D, H), and z, (B, T, D-1)."""
    depth, stack = cell.config.depth, trace(cell, x, start)
    return torch.stack(stack[:depth], 2), torch.stack(stack[depth:-1], 2), stack[-1]


@pytest.mark.parametrize("slope", [1.0, 4.0])
def test_hm_lstm_computes_its_equation_in_every_case(slope: float) -> None:
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


ANNEALED = {"name": "hm_lstm", "anneal": 4}


def test_the_slope_grows_linearly_to_five() -> None:
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


def test_only_training_scans_change_the_slope() -> None:
    cell = make("hm_lstm", anneal=4)
    x, start = inputs(cell)
    cell.eval().scan(x, start)
    with torch.no_grad():
        cell.train().scan(x, start)
    assert float(cell.slope) == 1.0
    assert float(make("hm_lstm", slope=2.0).slope) == 2.0
    assert "scans" not in make("hm_lstm").state_dict()


def test_a_resumed_training_continues_with_the_same_slope() -> None:
    """The number of scans equals the number of steps, and the weights are equal bit for bit."""
    corpus = open_corpus(
        {"name": "iid", "symbols": 3, "length": 5, "train": 60, "valid": 10, "test": 10}
    )
    config = zoo.config("hm_lstm", width=4, cell={"anneal": 20})
    recipe = Recipe(batch=20)

    def new() -> Training:
        return Training(zoo.build(config, corpus.task, 0, recipe.init), recipe, seed=0)

    whole, cut = new(), new()
    list(fit(whole, corpus, 4))
    list(fit(cut, corpus, 2))
    resumed = new()
    resumed.load(cut.dump())
    list(fit(resumed, corpus, 4))
    assert resumed.model.cell.scans == resumed.steps == whole.steps > 0
    assert float(resumed.model.cell.slope) == pytest.approx(1 + 4 * whole.steps / 20)
    for name, value in whole.model.state_dict().items():
        assert value.equal(resumed.model.state_dict()[name]), name


def test_runs_with_an_annealed_slope_are_not_packed() -> None:
    assert "running statistics" in reason_not_packable(tiny("hm_lstm", cell=ANNEALED))
    assert reason_not_packable(tiny("hm_lstm")) == ""


def test_a_slope_that_cannot_grow_is_an_error() -> None:
    with pytest.raises(UserError, match="slope=5 cannot grow to 5 in anneal=3"):
        CELLS.parse({"name": "hm_lstm", "slope": 5.0, "anneal": 3})
    assert zoo.build(zoo.config("hm_lstm", cell=ANNEALED), Task(vocab=5, length=4)).cell.scans == 0


UNITS = {"tanh": "rnn", "lstm": "lstm", "gru": "gru"}


def identity_gates(j: int, below: Tensor, before: Tensor) -> Tensor:
    """G^{i→j} = [i = j]."""
    return torch.eye(before.shape[1], dtype=before.dtype)[j].expand(len(below), -1)


def layer(cell: GatedFeedback, unit: str, j: int) -> Cell:
    """Return the plain cell with the weights of layer j."""
    w, plain = cell.w, make(UNITS[unit])

    def copy(name: str, rows: list[Tensor]) -> None:
        with torch.no_grad():
            plain.w.get_parameter(name).copy_(torch.cat(rows))

    for name, gate, candidate in (
        ("weight_ih", w.gates_below, w.w),
        ("weight_hh", w.gates_before, w.u[:, j]),
        ("bias_ih", w.gates_bias, w.b),
    ):
        gates = () if gate is None else gate[j].split(H)
        if unit == "lstm":  # torch's order is i, f, g, o
            copy(name, [*gates[:2], candidate[j], gates[2]])
        else:
            copy(name, [*gates, candidate[j]])
    with torch.no_grad():
        plain.w.bias_hh.zero_()
    return plain


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("unit", UNITS)
def test_with_identity_gates_it_is_a_stack_of_plain_cells(
    unit: str, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = make("gated_feedback", unit=unit, depth=depth)
    x, start = inputs(cell)
    if depth > 1:
        assert not cell.scan(x, start).allclose(stack_outputs(cell, unit, x, start))
    monkeypatch.setattr(cell, "reset", identity_gates)
    assert_close(cell.scan(x, start), stack_outputs(cell, unit, x, start), FINE, "outputs")


def stack_outputs(cell: GatedFeedback, unit: str, x: Tensor, start: Tensor) -> Tensor:
    """Return the outputs of plain cells, one above the other, with the weights of `cell`."""
    depth = cell.config.depth
    parts = start.unflatten(1, (-1, depth, H))  # h, or h and c, of every layer
    for j in range(depth):
        x = layer(cell, unit, j).scan(x, parts[:, :, j].flatten(1))
    return x


def test_the_tanh_unit_computes_its_equation() -> None:
    cell = make("gated_feedback", depth=2)
    w, (x, start) = cell.w, inputs(cell)
    before = start.split(H, dim=-1)
    for t in range(cell.length):
        below, now = x[:, t], []
        for j in range(2):
            s = torch.zeros_like(below)
            for i in range(2):
                g = below @ w.global_below[j, i] + torch.cat(before, -1) @ w.global_before[j, i]
                s = s + torch.sigmoid(g)[:, None] * (before[i] @ w.u[j, i].T)
            below = torch.tanh(below @ w.w[j].T + w.b[j] + s)
            now.append(below)
        before = now
        assert_close(cell.scan(x, start)[:, t], below, FINE, f"h at {t}")


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


def grid_outputs(cell: GridLSTM, x: Tensor, start: Tensor) -> Tensor:
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
def test_a_grid_computes_its_equation(
    along: Along, squash: Squash, *, tied: bool, priority: bool
) -> None:
    cell = make("grid_lstm", depth=3, along=along, squash=squash, tied=tied, priority=priority)
    x, start = inputs(cell)
    expected = torch.stack([grid_outputs(cell, *pair) for pair in zip(x, start, strict=True)])
    assert_close(cell.scan(x, start), expected, FINE, "outputs")
