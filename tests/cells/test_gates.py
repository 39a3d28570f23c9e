"""The gates that a cell reports: values in [0, 1], by name, equal to those that `step` uses."""

from typing import Any

import pytest
import torch

from lmzoo.cells.base import CELLS
from lmzoo.laws.support import assert_close
from tests.cells.support import WIDTH, inputs, make
from tests.tiny import FINE

EXAMPLES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("rnn", {}, []),
    ("mgu", {}, ["f"]),
    ("mgru", {}, ["f"]),
    ("gru", {}, ["r", "z"]),
    ("lstm", {}, ["i", "f", "o"]),
    ("lstm", {"forget": "coupled"}, ["i", "o"]),
    ("lstm_peephole", {}, ["i", "f", "o"]),
    ("gated_feedback", {}, ["G→1", "G→2"]),
    ("gated_feedback", {"unit": "lstm", "depth": 1}, ["G→1", "i 1", "f 1", "o 1"]),
    ("gated_feedback", {"unit": "gru", "depth": 1}, ["G→1", "r 1", "z 1"]),
    ("hm_lstm", {}, ["i 1", "f 1", "o 1", "z 1", "i 2", "f 2", "o 2", "out"]),
    ("grid_lstm", {}, [f"{g} {d} {k}" for k in (1, 2) for d in ("time", "depth") for g in "ufo"]),
    ("grid_lstm", {"along": "tanh", "depth": 1}, ["u time 1", "f time 1", "o time 1"]),
]
"""(cell, fields, names of its gates)"""


def first_step(name: str, **fields: Any) -> tuple[Any, Any, Any, dict[str, torch.Tensor]]:
    """Return (cell, projected, state, gates) of the first step, from random states."""
    cell = make(name, **fields)
    x, start = inputs(cell)
    projected, state = cell.project(x)[:, 0], cell.initial_state(start)
    return cell, projected, state, cell.gates(projected, state)


@pytest.mark.parametrize("name", list(CELLS))
def test_gates_are_in_zero_one_and_reading_them_keeps_the_state(name: str) -> None:
    cell, projected, state, gates = first_step(name)
    old_state = [part.clone() for part in state]
    cell.step(projected, state)
    for gate in gates.values():
        assert len(gate) == len(projected)
        assert ((gate >= 0) & (gate <= 1)).all()
    for part, old in zip(state, old_state, strict=True):
        assert_close(part, old, 0, "state")


@pytest.mark.parametrize(("name", "fields", "names"), EXAMPLES)
def test_gates_have_names(name: str, fields: dict[str, Any], names: list[str]) -> None:
    assert list(first_step(name, **fields)[3]) == names


def test_gates_compute_their_equations() -> None:
    """For three cells; the tests of `step` cover the others."""
    cell, projected, (h,), gates = first_step("mgu")
    x, _ = inputs(cell)
    w = cell.w
    assert_close(gates["f"], torch.sigmoid(x[:, 0] @ w.xf + h @ w.hf + w.bf), FINE, "f of mgu")

    for reset in ("before", "after", "input"):
        cell, projected, (h,), gates = first_step("gru", reset=reset)
        x, _ = inputs(cell)
        w = cell.w
        for k, name in enumerate("rz"):
            rows = slice(k * WIDTH, (k + 1) * WIDTH)
            logit = x[:, 0] @ w.weight_ih[rows].T + h @ w.weight_hh[rows].T
            logit = logit + w.bias_ih[rows] + w.bias_hh[rows]
            assert_close(gates[name], torch.sigmoid(logit), FINE, f"{name} of gru")

    cell, projected, (h, c), gates = first_step("lstm_peephole", peephole="diagonal")
    _, (_, after) = cell.step(projected, (h, c))
    logit = projected[:, 3 * WIDTH :] + h @ cell.w.weight_hh[3 * WIDTH :].T
    assert_close(
        gates["o"], torch.sigmoid(logit + after * cell.w.weight_ch[2]), FINE, "o reads the new c"
    )
