"""The kernels of the vanilla recurrent network, in the symbols of `kernels/cpu/rnn.py`.

A program computes `ROWS` sequences of one pack member for all steps; W_h stays on the chip.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import activate, activation_gradient, load_weight, product, tile
from lmzoo.kernels.gpu.scan import GpuRecurrence, states_before, weight_gradient


@dataclass(frozen=True)
class RNNGpuScan(GpuRecurrence):
    """Weight W_h."""

    num_weights: ClassVar[int] = 1
    activation: str = "tanh"

    def forward(self, projected: Tensor, start: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        states = torch.empty_like(projected)
        self.launch(_forward, states, projected, *weights, start, states, flags=[self.activation])
        return [states]

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> list[Tensor]:
        [states] = saved
        deltas, dstart = torch.empty_like(states), torch.empty_like(start)
        tensors = upstream, weights[0], states, deltas, dstart
        self.launch(_backward, states, *tensors, flags=[self.activation])
        return [deltas, dstart, weight_gradient(states_before(start, states), deltas)]


@triton.jit
@no_type_check
def _forward(
    projected, weight, start, states, B, T, H, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    i, at_row, ok = tile(p, B, H, COLUMNS, ROWS)
    w = load_weight(weight, p, H, H, 0, COLUMNS, False, PRECISION)
    h = tl.load(start + at_row * H + i, mask=ok, other=0.0)
    for t in range(T):
        at = (at_row * T + t) * H + i
        a = tl.load(projected + at, mask=ok, other=0.0)
        a += product(h, w, PRECISION)
        h = activate(a, ACTIVATION)
        tl.store(states + at, h, mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, weight, states, deltas, dstart, B, T, H, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    i, at_row, ok = tile(p, B, H, COLUMNS, ROWS)
    w = load_weight(weight, p, H, H, 0, COLUMNS, True, PRECISION)
    carried = tl.zeros((ROWS, COLUMNS), tl.float32)
    for back in range(T):
        at = (at_row * T + T - 1 - back) * H + i
        h = tl.load(states + at, mask=ok, other=0.0)
        delta = tl.load(upstream + at, mask=ok, other=0.0) + carried
        delta = activation_gradient(delta, h, ACTIVATION)
        carried = product(delta, w, PRECISION)
        tl.store(deltas + at, delta, mask=ok)
    tl.store(dstart + at_row * H + i, carried, mask=ok)
