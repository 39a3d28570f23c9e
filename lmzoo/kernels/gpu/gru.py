"""The kernels of the gated recurrent unit, in the symbols of `kernels/cpu/gru.py`.

A program computes `ROWS` sequences of one pack member for all steps; the three blocks of W_h stay
on the chip. `projected` has the columns of r, z and n. With reset=before the bias of the state's
product is part of it; with reset=after, b_h is a weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import load_weight, product, tanh, tile
from lmzoo.kernels.gpu.scan import GpuRecurrence, states_before, weight_gradient


@dataclass(frozen=True)
class GRUGpuScan(GpuRecurrence):
    """Weights W_h (columns r, z, n) and b_h (P, 1, H), which reset=before does not read."""

    num_weights: ClassVar[int] = 3
    reset_before: bool = False

    def forward(self, projected: Tensor, start: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        flags = (self.reset_before,)
        gates = torch.empty_like(projected)
        states, m = projected.new_empty(2, *projected.shape[:-1], start.shape[-1]).unbind()
        tensors = projected, *weights, start, states, gates, m
        self.launch(_forward, states, *tensors, flags=flags)
        return [states, gates, m]

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> list[Tensor]:
        states, gates, m = saved
        flags = (self.reset_before,)
        tensors = upstream, weights[0], start, states, gates, m
        deltas, dstart = torch.empty_like(gates), torch.empty_like(start)
        self.launch(_backward, states, *tensors, deltas, dstart, flags=flags)
        width = start.shape[-1]
        before = states_before(start, states)
        r, d_gates, d_n = gates[..., :width], deltas[..., : 2 * width], deltas[..., 2 * width :]
        inner = (r * before, d_n) if self.reset_before else (before, d_n * r)
        d_weight = [weight_gradient(before, d_gates), weight_gradient(*inner)]
        d_bias = torch.zeros_like(weights[1]) if self.reset_before else inner[1].sum((1, 2))
        return [deltas, dstart, torch.cat(d_weight, dim=-1), d_bias.view_as(weights[1])]


@triton.jit
@no_type_check
def _forward(
    projected, weight, bias, start, states, gates, m_out, B, T, H, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, BEFORE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    i, at_row, ok = tile(p, B, H, COLUMNS, ROWS)
    w_r = load_weight(weight, p, H, 3 * H, 0, COLUMNS, False, PRECISION)
    w_z = load_weight(weight, p, H, 3 * H, H, COLUMNS, False, PRECISION)
    w_n = load_weight(weight, p, H, 3 * H, 2 * H, COLUMNS, False, PRECISION)
    b = tl.load(bias + p * H + i, mask=i < H, other=0.0)
    h = tl.load(start + at_row * H + i, mask=ok, other=0.0)
    for t in range(T):
        at = (at_row * T + t) * 3 * H + i
        a = tl.load(projected + at, mask=ok, other=0.0)
        r = tl.sigmoid(a + product(h, w_r, PRECISION))
        a = tl.load(projected + at + H, mask=ok, other=0.0)
        z = tl.sigmoid(a + product(h, w_z, PRECISION))
        a = tl.load(projected + at + 2 * H, mask=ok, other=0.0)
        if BEFORE:
            m = r * h
            n = tanh(a + product(m, w_n, PRECISION))
        else:
            m = b + product(h, w_n, PRECISION)
            n = tanh(a + r * m)
        h = z * h + (1 - z) * n
        tl.store(gates + at, r, mask=ok)
        tl.store(gates + at + H, z, mask=ok)
        tl.store(gates + at + 2 * H, n, mask=ok)
        at = (at_row * T + t) * H + i
        tl.store(states + at, h, mask=ok)
        tl.store(m_out + at, m, mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, weight, start, states, gates, m_in, deltas, dstart, B, T, H, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, BEFORE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    i, at_row, ok = tile(p, B, H, COLUMNS, ROWS)
    w_r = load_weight(weight, p, H, 3 * H, 0, COLUMNS, True, PRECISION)
    w_z = load_weight(weight, p, H, 3 * H, H, COLUMNS, True, PRECISION)
    w_n = load_weight(weight, p, H, 3 * H, 2 * H, COLUMNS, True, PRECISION)
    h_0 = tl.load(start + at_row * H + i, mask=ok, other=0.0)
    carried = tl.zeros((ROWS, COLUMNS), tl.float32)
    for back in range(T):
        t = T - 1 - back
        at = (at_row * T + t) * H + i
        delta = tl.load(upstream + at, mask=ok, other=0.0) + carried
        h = tl.where(t > 0, tl.load(states + at - H, mask=ok & (t > 0), other=0.0), h_0)
        m = tl.load(m_in + at, mask=ok, other=0.0)
        at = (at_row * T + t) * 3 * H + i
        r = tl.load(gates + at, mask=ok, other=0.0)
        z = tl.load(gates + at + H, mask=ok, other=0.0)
        n = tl.load(gates + at + 2 * H, mask=ok, other=0.0)
        d_n = delta * (1 - z) * (1 - n * n)
        d_z = delta * (h - n) * z * (1 - z)
        carried = delta * z
        if BEFORE:
            s = product(d_n, w_n, PRECISION)
            d_r = s * h * r * (1 - r)
            carried += s * r
        else:
            d_m = d_n * r
            d_r = d_m * m * (1 - r)
            carried += product(d_m, w_n, PRECISION)
        carried += product(d_r, w_r, PRECISION)
        carried += product(d_z, w_z, PRECISION)
        tl.store(deltas + at, d_r, mask=ok)
        tl.store(deltas + at + H, d_z, mask=ok)
        tl.store(deltas + at + 2 * H, d_n, mask=ok)
    tl.store(dstart + at_row * H + i, carried, mask=ok)
