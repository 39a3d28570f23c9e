"""The position of the GRU's reset gate and the meaning of its update gate (S3, S4)."""

import itertools

import pytest
import torch
from torch import Tensor

from lmzoo.cells.base import Cell
from tests.cells.support import inputs, make, outputs
from tests.laws.support import assert_close
from tests.tiny import FINE

RESETS, UPDATES = ("after", "before", "input"), ("z_keeps", "z_writes")


def parts(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows of r, z and n."""
    r, z, n = weight.chunk(3)
    return r, z, n


def set_gate(cell: Cell, gate: int, value: float) -> None:
    """Make the pre-activation of a gate constant."""
    with torch.no_grad():
        for name, weight in cell.w.named_parameters():
            parts(weight)[gate].fill_(value if name == "bias_ih" else 0.0)


@pytest.mark.parametrize(("reset", "update"), [*itertools.product(RESETS, UPDATES)])
def test_each_variant_computes_its_equation(reset: str, update: str) -> None:
    cell = make("gru", reset=reset, update=update)
    w, (x, h) = cell.w, inputs(cell)
    (ir, iz, inn), (hr, hz, hn) = parts(w.weight_ih), parts(w.weight_hh)
    (bir, biz, bin_), (bhr, bhz, bhn) = parts(w.bias_ih), parts(w.bias_hh)
    outputs_ = cell.scan(x, h)
    for t in range(cell.length):
        r = torch.sigmoid(x[:, t] @ ir.T + bir + h @ hr.T + bhr)
        z = torch.sigmoid(x[:, t] @ iz.T + biz + h @ hz.T + bhz)
        token = (r * x[:, t] if reset == "input" else x[:, t]) @ inn.T + bin_
        state = (r * h if reset == "before" else h) @ hn.T + bhn
        n = torch.tanh(token + (r * state if reset == "after" else state))
        h = (1 - z) * n + z * h if update == "z_keeps" else z * n + (1 - z) * h
        assert_close(outputs_[:, t], h, FINE, f"h at {t}")


def test_the_variants_are_six_functions() -> None:
    results = [outputs(make("gru", reset=r, update=u)) for r in RESETS for u in UPDATES]
    assert not any(a.allclose(b) for a, b in itertools.combinations(results, 2))


@pytest.mark.parametrize("reset", RESETS)
def test_the_updates_are_equal_if_the_weights_of_z_change_sign(reset: str) -> None:
    keeps, writes = (make("gru", reset=reset, update=update) for update in UPDATES)
    with torch.no_grad():
        for weight in writes.w.parameters():
            parts(weight)[1].neg_()
    assert_close(outputs(writes), outputs(keeps), FINE, "outputs")


def test_reset_before_equals_after_if_w_hn_is_diagonal_or_r_is_one() -> None:
    def pair() -> list[Cell]:
        cells = [make("gru", reset=reset) for reset in ("before", "after")]
        for cell in cells:
            with torch.no_grad():
                parts(cell.w.bias_hh)[2].zero_()
        return cells

    diagonal, no_reset, drawn = pair(), pair(), pair()
    for cell in diagonal:
        with torch.no_grad():
            matrix = parts(cell.w.weight_hh)[2]
            matrix.copy_(torch.diag(matrix.diagonal()))
    for cell in no_reset:
        set_gate(cell, 0, 100.0)
    assert_close(outputs(diagonal[0]), outputs(diagonal[1]), FINE, "outputs, diagonal")
    assert_close(outputs(no_reset[0]), outputs(no_reset[1]), FINE, "outputs, r = 1")
    assert not outputs(drawn[0]).allclose(outputs(drawn[1]))


@pytest.mark.parametrize("reset", RESETS)
def test_with_open_gates_it_is_a_tanh_rnn(reset: str) -> None:
    cell, plain = make("gru", reset=reset, update="z_writes"), make("rnn")
    set_gate(cell, 0, 100.0)
    set_gate(cell, 1, 100.0)
    with torch.no_grad():
        for name, weight in plain.w.named_parameters():
            weight.copy_(parts(cell.w.get_parameter(name))[2])
    assert_close(outputs(cell), outputs(plain), FINE, "outputs")
