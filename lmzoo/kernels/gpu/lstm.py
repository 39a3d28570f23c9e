"""The kernels of long short-term memory, in the symbols of `kernels/cpu/lstm.py`.

A program computes `ROWS` sequences of one pack member for all steps; the blocks of W_h stay on the
chip. `projected` has the columns of i, f, g and o, those of f only with a forget gate.
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
class LSTMGpuScan(GpuRecurrence):
    """Weight W_h, columns i, f, g, o; start is (h, c)."""

    num_weights: ClassVar[int] = 4
    vectors: ClassVar[int] = 2
    forget: str = "gate"
    """gate; none: f ≡ 1; coupled: f = 1 − i."""

    def forward(self, projected: Tensor, start: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        states = projected.new_empty(*projected.shape[:-1], start.shape[-1] // 2)
        saved = [states, torch.empty_like(projected), torch.empty_like(states)]
        self.launch(_forward, states, projected, *weights, start, *saved, flags=[self.forget])
        return saved

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> list[Tensor]:
        states, gates, memory = saved
        tensors = upstream, weights[0], start, gates, memory
        deltas, dstart = torch.empty_like(gates), torch.empty_like(start)
        self.launch(_backward, states, *tensors, deltas, dstart, flags=[self.forget])
        before = states_before(start.chunk(2, dim=-1)[0], states)
        return [deltas, dstart, weight_gradient(before, deltas)]


@triton.jit
@no_type_check
def _forward(
    projected, weight, start, states, gates, memory, B, T, H, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, FORGET: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    i, at_row, ok = tile(p, B, H, COLUMNS, ROWS)
    G = 4 * H if FORGET == "gate" else 3 * H
    w_i = load_weight(weight, p, H, G, 0, COLUMNS, False, PRECISION)
    if FORGET == "gate":
        w_f = load_weight(weight, p, H, G, H, COLUMNS, False, PRECISION)
    w_g = load_weight(weight, p, H, G, G - 2 * H, COLUMNS, False, PRECISION)
    w_o = load_weight(weight, p, H, G, G - H, COLUMNS, False, PRECISION)
    at_start = at_row * 2 * H + i
    h = tl.load(start + at_start, mask=ok, other=0.0)
    c = tl.load(start + at_start + H, mask=ok, other=0.0)
    for t in range(T):
        at = (at_row * T + t) * G + i
        a = tl.load(projected + at, mask=ok, other=0.0)
        i_ = tl.sigmoid(a + product(h, w_i, PRECISION))
        a = tl.load(projected + at + G - 2 * H, mask=ok, other=0.0)
        g = tanh(a + product(h, w_g, PRECISION))
        a = tl.load(projected + at + G - H, mask=ok, other=0.0)
        o = tl.sigmoid(a + product(h, w_o, PRECISION))
        if FORGET == "gate":
            a = tl.load(projected + at + H, mask=ok, other=0.0)
            f = tl.sigmoid(a + product(h, w_f, PRECISION))
            tl.store(gates + at + H, f, mask=ok)
            c = f * c
        elif FORGET == "coupled":
            c = (1 - i_) * c
        c += i_ * g
        h = o * tanh(c)
        tl.store(gates + at, i_, mask=ok)
        tl.store(gates + at + G - 2 * H, g, mask=ok)
        tl.store(gates + at + G - H, o, mask=ok)
        at = (at_row * T + t) * H + i
        tl.store(states + at, h, mask=ok)
        tl.store(memory + at, c, mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, weight, start, gates, memory, deltas, dstart, B, T, H, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, FORGET: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    i, at_row, ok = tile(p, B, H, COLUMNS, ROWS)
    G = 4 * H if FORGET == "gate" else 3 * H
    w_i = load_weight(weight, p, H, G, 0, COLUMNS, True, PRECISION)
    if FORGET == "gate":
        w_f = load_weight(weight, p, H, G, H, COLUMNS, True, PRECISION)
    w_g = load_weight(weight, p, H, G, G - 2 * H, COLUMNS, True, PRECISION)
    w_o = load_weight(weight, p, H, G, G - H, COLUMNS, True, PRECISION)
    at_start = at_row * 2 * H + i
    c_0 = tl.load(start + at_start + H, mask=ok, other=0.0)
    carried = tl.zeros((ROWS, COLUMNS), tl.float32)
    gamma = tl.zeros((ROWS, COLUMNS), tl.float32)
    for back in range(T):
        t = T - 1 - back
        at = (at_row * T + t) * H + i
        delta = tl.load(upstream + at, mask=ok, other=0.0) + carried
        q = tanh(tl.load(memory + at, mask=ok, other=0.0))
        c = tl.where(t > 0, tl.load(memory + at - H, mask=ok & (t > 0), other=0.0), c_0)
        at = (at_row * T + t) * G + i
        i_ = tl.load(gates + at, mask=ok, other=0.0)
        g = tl.load(gates + at + G - 2 * H, mask=ok, other=0.0)
        o = tl.load(gates + at + G - H, mask=ok, other=0.0)
        gamma += delta * o * (1 - q * q)
        d_o = delta * q * o * (1 - o)
        d_g = gamma * i_ * (1 - g * g)
        if FORGET == "coupled":
            d_i = gamma * (g - c) * i_ * (1 - i_)
        else:
            d_i = gamma * g * i_ * (1 - i_)
        carried = product(d_i, w_i, PRECISION)
        carried += product(d_g, w_g, PRECISION)
        carried += product(d_o, w_o, PRECISION)
        if FORGET == "gate":
            f = tl.load(gates + at + H, mask=ok, other=0.0)
            d_f = gamma * c * f * (1 - f)
            carried += product(d_f, w_f, PRECISION)
            tl.store(deltas + at + H, d_f, mask=ok)
            gamma = gamma * f
        elif FORGET == "coupled":
            gamma = gamma * (1 - i_)
        tl.store(deltas + at, d_i, mask=ok)
        tl.store(deltas + at + G - 2 * H, d_g, mask=ok)
        tl.store(deltas + at + G - H, d_o, mask=ok)
    tl.store(dstart + at_start, carried, mask=ok)
    tl.store(dstart + at_start + H, gamma, mask=ok)
