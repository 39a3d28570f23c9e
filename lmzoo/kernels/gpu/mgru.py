"""The kernels of the MGRU with the carry of its state, in the symbols of `cells/mgru.py`.

A program computes `ROWS` sequences of one pack member for all steps; W_hf stays on the chip. The
candidates g are projected and activated outside; the kernel returns the states h, not the outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import load_weight, product, read_state
from lmzoo.kernels.gpu.scan import GpuRecurrence, weight_gradient


@dataclass(frozen=True)
class MGRUGpuScan(GpuRecurrence):
    """Weight W_hf, unless the gate is cut."""

    num_weights: ClassVar[int] = 1
    gate: bool = True
    carry: bool = True
    write: bool = True
    keep: bool = False
    read: str = "raw"

    def forward(self, projected: Tensor, start: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        weight = weights[0] if weights else start  # never read where the gate is cut
        saved = [torch.empty_like(projected) for _ in range(3)]
        self.launch(_forward, projected, projected, weight, start, *saved, flags=self._flags)
        return saved

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> list[Tensor]:
        weight = weights[0] if weights else start
        dprojected, deltas, read = (torch.empty_like(upstream) for _ in range(3))
        dstart = torch.empty_like(start)
        tensors = upstream, weight, start, *saved, dprojected, deltas, read, dstart
        self.launch(_backward, upstream, *tensors, flags=self._flags)
        return [dprojected, dstart, *([weight_gradient(read, deltas)] if self.gate else [])]

    @property
    def _flags(self) -> tuple[bool, bool, bool, bool, str]:
        return self.gate, self.carry, self.write, self.keep, self.read


@triton.jit
@no_type_check
def _forward(
    g, hf, start, states, fs, gs, B, T, H, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    GATE: tl.constexpr, CARRY: tl.constexpr, WRITE: tl.constexpr, KEEP: tl.constexpr,
    READ: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, COLUMNS)
    ok = (row[:, None] < B) & (i[None, :] < H)
    if GATE:
        w = load_weight(hf, p, H, H, 0, COLUMNS, False, PRECISION)
    at_row = p * B + row[:, None]
    h = tl.load(start + at_row * H + i[None, :], mask=ok, other=0.0)
    for t in range(T):
        at = (at_row * T + t) * H + i[None, :]
        f = tl.full((ROWS, COLUMNS), 0.5, tl.float32)
        if GATE:
            q, _ = read_state(h, READ)
            f = tl.sigmoid(product(q, w, PRECISION))
        j = h
        h = (1 - f) * j if CARRY else tl.zeros((ROWS, COLUMNS), tl.float32)
        if WRITE:
            candidate = tl.load(g + at, mask=ok, other=0.0)
            h += f * candidate
            tl.store(gs + at, candidate, mask=ok)
        if KEEP:
            h += f * j
        tl.store(states + at, h, mask=ok)
        tl.store(fs + at, f, mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, hf, start, states, fs, gs, dprojected, deltas, read, dstart, B, T, H,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, GATE: tl.constexpr, CARRY: tl.constexpr,
    WRITE: tl.constexpr, KEEP: tl.constexpr, READ: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, COLUMNS)
    ok = (row[:, None] < B) & (i[None, :] < H)
    if GATE:
        w = load_weight(hf, p, H, H, 0, COLUMNS, True, PRECISION)
    at_row = p * B + row[:, None]
    h_0 = tl.load(start + at_row * H + i[None, :], mask=ok, other=0.0)
    carried = tl.zeros((ROWS, COLUMNS), tl.float32)
    # Fewer loads ahead than Triton's default, so that the shared memory is that of one weight.
    for back in tl.range(0, T, num_stages=2):
        t = T - 1 - back
        at = (at_row * T + t) * H + i[None, :]
        h = tl.load(states + at - H, mask=ok & (t > 0), other=0.0)
        h = tl.where(t > 0, h, h_0)
        f = tl.load(fs + at, mask=ok, other=0.0)
        delta = tl.load(upstream + at, mask=ok, other=0.0) + carried
        zeros = tl.zeros((ROWS, COLUMNS), tl.float32)
        d_f, carried = zeros, zeros
        if CARRY:
            d_f -= delta * h
            carried += (1 - f) * delta
        if KEEP:
            d_f += delta * h
            carried += f * delta
        if WRITE:
            d_f += delta * tl.load(gs + at, mask=ok, other=0.0)
            tl.store(dprojected + at, f * delta, mask=ok)
        else:
            tl.store(dprojected + at, zeros, mask=ok)
        if GATE:
            q, slope = read_state(h, READ)
            d_a = d_f * f * (1 - f)
            carried += product(d_a, w, PRECISION) * slope
            tl.store(read + at, q, mask=ok)
            tl.store(deltas + at, d_a, mask=ok)
    tl.store(dstart + at_row * H + i[None, :], carried, mask=ok)
