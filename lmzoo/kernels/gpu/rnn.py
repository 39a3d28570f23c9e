"""The kernels of the vanilla recurrent network, in the symbols of `kernels/cpu/rnn.py`.

A program computes `ROWS` sequences of one pack member for all steps; W_h stays on the chip.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import load_weight, product, tanh
from lmzoo.kernels.gpu.scan import (
    ROWS,
    GpuRecurrence,
    grid_of,
    padded,
    states_before,
    warps,
    weight_gradient,
)


@dataclass(frozen=True)
class RNNGpuScan(GpuRecurrence):
    """Weight W_h."""

    activation: str = "tanh"

    def forward(self, projected: Tensor, start: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        states = torch.empty_like(projected)
        self._launch(_forward, projected, *weights, start, states)
        return [states]

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> list[Tensor]:
        [states] = saved
        deltas, dstart = torch.empty_like(states), torch.empty_like(start)
        self._launch(_backward, upstream, *weights, states, deltas, dstart)
        return [deltas, dstart, weight_gradient(states_before(start, states), deltas)]

    def _launch(self, kernel: Any, first: Tensor, *rest: Tensor) -> None:
        _, rows, steps, width = first.shape
        sizes = rows, steps, width, padded(width), ROWS
        kernel[grid_of(first)](
            first, *rest, *sizes, self.activation, self.precision, num_warps=warps(width)
        )


@triton.jit
@no_type_check
def _forward(
    projected, weight, start, states, B, T, H, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, COLUMNS)
    ok = (row[:, None] < B) & (i[None, :] < H)
    w = load_weight(weight, p, H, H, 0, COLUMNS, False, PRECISION)
    at_row = p * B + row[:, None]
    h = tl.load(start + at_row * H + i[None, :], mask=ok, other=0.0)
    for t in range(T):
        at = (at_row * T + t) * H + i[None, :]
        a = tl.load(projected + at, mask=ok, other=0.0)
        a += product(h, w, PRECISION)
        if ACTIVATION == "tanh":
            h = tanh(a)
        elif ACTIVATION == "sigmoid":
            h = tl.where(i[None, :] < H, tl.sigmoid(a), 0.0)
        elif ACTIVATION == "relu":
            h = tl.where(a > 0, a, 0.0)
        else:
            h = a
        tl.store(states + at, h, mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, weight, states, deltas, dstart, B, T, H, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, COLUMNS)
    ok = (row[:, None] < B) & (i[None, :] < H)
    w = load_weight(weight, p, H, H, 0, COLUMNS, True, PRECISION)
    at_row = p * B + row[:, None]
    carried = tl.zeros((ROWS, COLUMNS), tl.float32)
    for back in range(T):
        at = (at_row * T + T - 1 - back) * H + i[None, :]
        h = tl.load(states + at, mask=ok, other=0.0)
        delta = tl.load(upstream + at, mask=ok, other=0.0) + carried
        if ACTIVATION == "tanh":
            delta *= 1 - h * h
        elif ACTIVATION == "sigmoid":
            delta *= h * (1 - h)
        elif ACTIVATION == "relu":
            delta = tl.where(h > 0, delta, 0.0)
        carried = product(delta, w, PRECISION)
        tl.store(deltas + at, delta, mask=ok)
    tl.store(dstart + at_row * H + i[None, :], carried, mask=ok)
