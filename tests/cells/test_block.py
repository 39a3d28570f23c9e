"""The residual block: its parts by their equations, its cuts, and its scan."""

from typing import Any

import pytest
import torch
from torch import nn

from lmzoo.base.errors import UserError
from lmzoo.cells.base import Cell
from lmzoo.cells.block import BlockCut
from lmzoo.laws.cells import UNCUT_LAWS
from lmzoo.laws.support import assert_close
from tests.cells.support import inputs, make
from tests.kernels.variants import data, results
from tests.tiny import FINE

ALL = [cut.value for cut in BlockCut]
SETS: list[tuple[str, list[str]]] = [
    *(("min_gru", cuts) for cuts in ([], *([cut] for cut in ALL), ALL)),
    ("lstm", []),
    ("gated_deltanet", []),
]


@pytest.mark.parametrize(("inner", "cuts"), SETS, ids=str)
def test_scan_equals_steps_in_outputs_and_gradients(inner: str, cuts: list[str]) -> None:
    cell = make("block", width=5, length=6, inner=inner, cuts=cuts)
    x, start = data(cell, 3, 6)
    fast, naive = (results(cell, x, start, fast=fast) for fast in (True, False))
    for actual, expected in zip(fast, naive, strict=True):
        assert_close(actual, expected, FINE, str(cell.config))


@pytest.mark.parametrize("inner", ["lstm", "hm_lstm", "grid_lstm"])
def test_a_block_with_all_cuts_is_its_cell_and_a_matrix(inner: str) -> None:
    cell = make("block", inner=inner, cuts=[cut.value for cut in BlockCut])
    x, start = inputs(cell)
    expected = cell.inner.scan(x, start) @ cell.w.out.T
    assert_close(cell.scan(x, start), expected, FINE, "outputs")


@pytest.mark.parametrize(
    ("canon", "cuts"),
    [("a,c,d", []), ("a", ["convolution", "norm"]), ("c,d", ["residual", "output_gate"])],
    ids=str,
)
def test_canon_layers_in_scan_steps_and_laws(canon: str, cuts: list[str]) -> None:
    fields = {"inner": "gru", "canon": canon, "cuts": cuts, "gate_reads": "input"}
    cell = make("block", width=5, length=6, **fields)
    x, start = data(cell, 3, 6)
    fast, naive = (results(cell, x, start, fast=fast) for fast in (True, False))
    for actual, expected in zip(fast, naive, strict=True):
        assert_close(actual, expected, FINE, str(cell.config))
    for law in UNCUT_LAWS:
        law(make("block", **fields))
    assert {name[2:] for name, _ in cell.named_parameters() if "canon" in name} == {
        f"canon_{place}" for place in canon.split(",")
    }


def canon_layer(weight: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """As PhysicsLM4's `apply_canon` with a residual."""
    padded = nn.functional.pad(z.mT, (3, 0))
    return z + nn.functional.conv1d(padded, weight[:, None], groups=len(weight)).mT


MEMORY = {"mamba": "x", "mamba2": "xbc", "mamba3": "xbc", "mlstm": "u"}
"""First projections of cells that do not have q, k and v there."""


@pytest.mark.parametrize("inner", [*MEMORY, "gla", "deltaproduct"])
def test_canon_b_convolves_what_becomes_queries_keys_and_values(inner: str) -> None:
    """The projections, before a convolution of the cell's own; gates and decays stay."""
    fields = {"inner": inner, "cuts": ["convolution"]}
    cell: Any = make("block", width=8, length=6, canon="b", **fields)
    x, start = data(cell, 3, 6)
    fast, naive = (results(cell, x, start, fast=fast) for fast in (True, False))
    for actual, expected in zip(fast, naive, strict=True):
        assert_close(actual, expected, FINE, str(cell.config))
    plain: Any = make("block", width=8, length=6, **fields)
    project, w = plain.inner.project, plain.inner.w
    size = sum(len(getattr(w, name)) for name in MEMORY.get(inner, "qkv"))

    def mixed(u: torch.Tensor) -> torch.Tensor:
        z = project(u)
        return torch.cat([canon_layer(cell.w.canon_b, z[..., :size]), z[..., size:]], dim=-1)

    plain.inner.project = mixed
    assert_close(plain.scan(x, start), cell.scan(x, start), FINE, "outputs")


def test_canon_b_needs_queries_keys_and_values() -> None:
    for inner in ("min_gru", "rwkv7"):
        with pytest.raises(UserError, match=f"canon=b needs .* {inner} does not; drop b"):
            make("block", inner=inner, canon="b")


def test_canon_and_cuts_of_its_part_exclude_each_other() -> None:
    with pytest.raises(UserError, match="canon=c is in the feed-forward part, which is cut"):
        make("block", canon="c,a", cuts=["feed_forward"])


def reference(cell: Any, x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Compute the block with torch's convolution and norms, one part after another."""
    w, h = cell.w, cell.width
    norm = nn.RMSNorm(h, eps=1e-5).double()
    norm.weight.data.copy_(w.norm)

    def canon(place: str, z: torch.Tensor) -> torch.Tensor:
        weight = getattr(w, f"canon_{place}", None)
        return z if weight is None else canon_layer(weight, z)

    normed = canon("a", norm(x))
    padded = nn.functional.pad(normed.mT, (3, 0))
    u = nn.functional.silu(nn.functional.conv1d(padded, w.conv[:, None], groups=h).mT)
    gate = (normed if cell.config.gate_reads == "input" else u) @ w.gate.T
    r = x + (cell.inner.naive_scan(u, start) * gate * gate.sigmoid()) @ w.out.T
    norm.weight.data.copy_(w.forward_norm)
    a, b = canon("d", canon("c", norm(r)) @ w.up.T).chunk(2, dim=-1)
    return r + (a * a.sigmoid() * b) @ w.down.T


@pytest.mark.parametrize("canon", ["", "a", "c", "d", "a,c,d"])
@pytest.mark.parametrize("gate_reads", ["convolved", "input"])
def test_it_computes_its_equation(gate_reads: str, canon: str) -> None:
    cell: Cell = make("block", inner="gru", gate_reads=gate_reads, canon=canon)
    with torch.no_grad():
        for weight in (cell.w.norm, cell.w.forward_norm):
            weight.add_(torch.rand(cell.width))
    assert_close(cell.scan(*inputs(cell)), reference(cell, *inputs(cell)), FINE, "outputs")
