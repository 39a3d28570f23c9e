"""The gated feedback network (S2)."""

import pytest
import torch
from torch import Tensor

from lmzoo.cells.base import Cell
from lmzoo.cells.stacked import GatedFeedback
from lmzoo.laws.support import assert_close
from tests.cells.support import inputs, make
from tests.tiny import FINE

UNITS = {"tanh": "rnn", "lstm": "lstm", "gru": "gru"}
H = 3


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
