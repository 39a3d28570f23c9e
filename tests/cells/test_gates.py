"""What a cell says of its gates: between 0 and 1, by name, and what `step` itself uses."""

from typing import Any

import pytest
import torch

from lmzoo.cells.base import CELLS
from tests.cells.run import WIDTH, inputs, make
from tests.laws.support import assert_close
from tests.tiny import FINE

NAMES: dict[str, list[str]] = {
    "rnn": [],
    "mgu": ["f"],
    "mgru": ["f"],
    "gru": ["r", "z"],
    "lstm": ["i", "f", "o"],
    "lstm_peephole": ["i", "f", "o"],
    "gated_feedback": ["G→1", "G→2"],
    "hm_lstm": ["i 1", "f 1", "o 1", "z 1", "i 2", "f 2", "o 2", "out"],
    "grid_lstm": [f"{g} {side} {k}" for k in (1, 2) for side in ("time", "depth") for g in "ufo"],
}


def first(name: str, **fields: Any) -> tuple[Any, Any, Any, dict[str, torch.Tensor]]:
    """(cell, projected, state, gates) of the first step from random states."""
    cell = make(name, **fields)
    x, start = inputs(cell)
    projected, state = cell.project(x)[:, 0], cell.initial_state(start)
    return cell, projected, state, cell.gates(projected, state)


@pytest.mark.parametrize("name", list(CELLS))
def test_every_gate_has_a_name_and_is_a_share(name: str) -> None:
    cell, projected, state, gates = first(name)
    assert list(gates) == NAMES[name]
    kept = [part.clone() for part in state]
    cell.step(projected, state)
    for gate in gates.values():
        assert len(gate) == len(projected)
        assert ((gate >= 0) & (gate <= 1)).all()
    for part, before in zip(state, kept, strict=True):
        assert_close(part, before, 0, "a state that was looked at")


def test_layers_have_their_own_gates() -> None:
    assert list(first("gated_feedback", unit="lstm", depth=1)[3]) == ["G→1", "i 1", "f 1", "o 1"]
    assert list(first("gated_feedback", unit="gru", depth=1)[3]) == ["G→1", "r 1", "z 1"]
    assert list(first("grid_lstm", along="tanh", depth=1)[3]) == [
        "u time 1",
        "f time 1",
        "o time 1",
    ]
    assert list(first("lstm", forget="coupled")[3]) == ["i", "o"]
    assert first("gated_feedback", unit="lstm")[3]["G→2"].shape == (2, 2)


def test_gates_are_their_equations() -> None:
    """Of the three cells written out by hand; the others' steps have their own tests."""
    cell, projected, (h,), gates = first("mgu")
    x, _ = inputs(cell)
    w = cell.w
    assert_close(gates["f"], torch.sigmoid(x[:, 0] @ w.xf + h @ w.hf + w.bf), FINE, "f of mgu")

    for reset in ("before", "after", "input"):
        cell, projected, (h,), gates = first("gru", reset=reset)
        x, _ = inputs(cell)
        w = cell.w
        for k, name in enumerate("rz"):
            rows = slice(k * WIDTH, (k + 1) * WIDTH)
            read = x[:, 0] @ w.weight_ih[rows].T + h @ w.weight_hh[rows].T
            read = read + w.bias_ih[rows] + w.bias_hh[rows]
            assert_close(gates[name], torch.sigmoid(read), FINE, f"{name} of gru")

    cell, projected, (h, c), gates = first("lstm_peephole", peephole="diagonal")
    _, (_, after) = cell.step(projected, (h, c))
    read = projected[:, 3 * WIDTH :] + h @ cell.w.weight_hh[3 * WIDTH :].T
    assert_close(
        gates["o"], torch.sigmoid(read + after * cell.w.weight_ch[2]), FINE, "o sees the new cell"
    )


@pytest.mark.parametrize("unit", ["lstm", "gru"])
def test_shut_gates_keep_the_state(unit: str) -> None:
    """What `gates` says is what `step` does: forget nothing, write nothing."""
    cell, projected, state, _ = first("gated_feedback", unit=unit, depth=1)
    with torch.no_grad():
        cell.w.gates_bias[0] = torch.tensor(
            [-50.0, 50.0, 50.0] if unit == "lstm" else [0.0, 50.0]
        ).repeat_interleave(WIDTH)
    gates = cell.gates(projected, state)
    assert gates["f 1" if unit == "lstm" else "z 1"].min() > 1 - FINE
    _, after = cell.step(projected, state)
    assert_close(after[-1], state[-1], FINE, "what is kept")
