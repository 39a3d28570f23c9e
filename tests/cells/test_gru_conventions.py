"""The position of the GRU's reset gate and the meaning of its update gate (S3, S4)."""

import itertools

import pytest
import torch
from torch import Tensor

from tests.cells.support import inputs, make
from tests.laws.support import assert_close
from tests.tiny import FINE

RESETS, UPDATES = ("after", "before", "input"), ("z_keeps", "z_writes")


def parts(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows of r, z and n."""
    r, z, n = weight.chunk(3)
    return r, z, n


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
