"""The residual block: its parts by their equations, its cuts, and its scan."""

from typing import Any

import pytest
import torch
from torch import nn

from lmzoo.cells.base import Cell
from lmzoo.cells.block import Cut
from tests.cells.support import inputs, make, outputs
from tests.kernels.variants import data, results
from tests.laws.support import assert_close
from tests.tiny import FINE

SETS: list[list[str]] = [[], *([cut.value] for cut in Cut), [cut.value for cut in Cut]]


@pytest.mark.parametrize("cuts", SETS, ids=str)
@pytest.mark.parametrize("inner", ["min_gru", "lstm", "gated_deltanet"])
def test_scan_equals_steps_in_outputs_and_gradients(inner: str, cuts: list[str]) -> None:
    cell = make("block", width=5, length=6, inner=inner, cuts=cuts)
    x, start = data(cell, 3, 6)
    fast, naive = (results(cell, x, start, fast=fast) for fast in (True, False))
    for actual, expected in zip(fast, naive, strict=True):
        assert_close(actual, expected, FINE, str(cell.config))


@pytest.mark.parametrize("inner", ["lstm", "hm_lstm", "grid_lstm"])
def test_a_block_with_all_cuts_is_its_cell_and_a_matrix(inner: str) -> None:
    cell = make("block", inner=inner, cuts=[cut.value for cut in Cut])
    x, start = inputs(cell)
    expected = cell.inner.scan(x, start) @ cell.w.out.T
    assert_close(cell.scan(x, start), expected, FINE, "outputs")


def reference(cell: Any, x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Compute the block with torch's convolution and norms, one part after another."""
    w, h = cell.w, cell.width
    norm = nn.RMSNorm(h, eps=1e-5).double()
    norm.weight.data.copy_(w.norm)
    padded = nn.functional.pad(norm(x).mT, (3, 0))
    u = nn.functional.silu(nn.functional.conv1d(padded, w.conv[:, None], groups=h).mT)
    gate = u @ w.gate.T
    r = x + (cell.inner.naive_scan(u, start) * gate * gate.sigmoid()) @ w.out.T
    norm.weight.data.copy_(w.forward_norm)
    a, b = (norm(r) @ w.up.T).chunk(2, dim=-1)
    return r + (a * a.sigmoid() * b) @ w.down.T


def test_it_computes_its_equation() -> None:
    cell: Cell = make("block", inner="gru")
    with torch.no_grad():
        for weight in (cell.w.norm, cell.w.forward_norm):
            weight.add_(torch.rand(cell.width))
    assert_close(cell.scan(*inputs(cell)), reference(cell, *inputs(cell)), FINE, "outputs")


def test_cuts_keep_the_other_weights() -> None:
    full, cut = make("block"), make("block", cuts=["output_gate", "feed_forward"])
    values = dict(full.named_parameters())
    for name, weight in cut.named_parameters():
        assert weight.equal(values[name]), name
    assert not outputs(full).allclose(outputs(cut))
