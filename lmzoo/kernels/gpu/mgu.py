r"""The kernels of the minimal gated unit, in the symbols of `kernels/cpu/mgu.py`.

A program computes `ROWS` sequences of one pack member for all steps; both recurrent weights stay on
the chip. `projected` has the columns x W_xf + b_f and x W_xh + b_h, zero where cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import load_weight, product, tanh
from lmzoo.kernels.gpu.scan import GpuRecurrence, weight_gradient


@dataclass(frozen=True)
class MGUGpuScan(GpuRecurrence):
    """Weights hf and hh, those that are not cut."""

    num_weights: ClassVar[int] = 2
    gate: bool
    """Whether there is hf."""
    candidate: bool
    """Whether there is hh."""
    carry: bool
    write: bool

    def forward(self, projected: Tensor, start: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        pair = self._pair(weights, start)
        shape = *projected.shape[:-1], start.shape[-1]
        saved = [projected.new_empty(shape) for _ in range(3)]
        self.launch(_forward, saved[0], projected, *pair, start, *saved, flags=self._flags)
        return saved

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> list[Tensor]:
        tensors = upstream, *self._pair(weights, start), start
        dprojected = upstream.new_empty(*upstream.shape[:-1], 2 * upstream.shape[-1])
        before, reset = torch.empty_like(upstream), torch.empty_like(upstream)
        dstart = torch.empty_like(start)
        rest = *saved, dprojected, dstart, before, reset
        self.launch(_backward, upstream, *tensors, *rest, flags=self._flags)
        df, dc = dprojected.chunk(2, dim=-1)
        gradients = [weight_gradient(before, df)] if self.gate else []
        gradients += [weight_gradient(reset, dc)] if self.candidate else []
        return [dprojected, dstart, *gradients]

    @property
    def _flags(self) -> tuple[bool, bool, bool, bool]:
        return self.gate, self.candidate, self.carry, self.write

    def _pair(self, weights: Sequence[Tensor], start: Tensor) -> tuple[Tensor, Tensor]:
        """Return hf and hh; a weight that is cut is another tensor, which is never read."""
        return next(iter(weights), start), weights[-1] if weights else start


@triton.jit
@no_type_check
def _forward(
    projected, hf, hh, start, states, fs, cs, B, T, H, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    GATE: tl.constexpr, CANDIDATE: tl.constexpr, CARRY: tl.constexpr, WRITE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, COLUMNS)
    ok = (row[:, None] < B) & (i[None, :] < H)
    if GATE:
        w_f = load_weight(hf, p, H, H, 0, COLUMNS, False, PRECISION)
    if CANDIDATE:
        w_h = load_weight(hh, p, H, H, 0, COLUMNS, False, PRECISION)
    at_row = p * B + row[:, None]
    h = tl.load(start + at_row * H + i[None, :], mask=ok, other=0.0)
    for t in range(T):
        at = (at_row * T + t) * H + i[None, :]
        at_projected = (at_row * T + t) * 2 * H + i[None, :]
        a = tl.load(projected + at_projected, mask=ok, other=0.0)
        if GATE:
            a += product(h, w_f, PRECISION)
        f = tl.sigmoid(a)
        c = tl.zeros((ROWS, COLUMNS), tl.float32)
        if WRITE:
            a = tl.load(projected + at_projected + H, mask=ok, other=0.0)
            if CANDIDATE:
                a += product(h * f, w_h, PRECISION)
            c = tanh(a)
        h = f * c + (1 - f) * h if CARRY else f * c
        tl.store(states + at, h, mask=ok)
        tl.store(fs + at, f, mask=ok)
        tl.store(cs + at, c, mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, hf, hh, start, states, fs, cs, dprojected, dstart, before, reset, B, T, H,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, GATE: tl.constexpr, CANDIDATE: tl.constexpr,
    CARRY: tl.constexpr, WRITE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, COLUMNS)
    ok = (row[:, None] < B) & (i[None, :] < H)
    if GATE:
        w_f = load_weight(hf, p, H, H, 0, COLUMNS, True, PRECISION)
    if CANDIDATE:
        w_h = load_weight(hh, p, H, H, 0, COLUMNS, True, PRECISION)
    at_row = p * B + row[:, None]
    h_0 = tl.load(start + at_row * H + i[None, :], mask=ok, other=0.0)
    carried = tl.zeros((ROWS, COLUMNS), tl.float32)
    # Three are the default; with two, registers are enough at width 32 too.
    for back in tl.range(0, T, num_stages=2 if COLUMNS < 64 else 3):
        t = T - 1 - back
        at = (at_row * T + t) * H + i[None, :]
        at_projected = (at_row * T + t) * 2 * H + i[None, :]
        h = tl.load(states + at - H, mask=ok & (t > 0), other=0.0)
        h = tl.where(t > 0, h, h_0)
        f = tl.load(fs + at, mask=ok, other=0.0)
        c = tl.load(cs + at, mask=ok, other=0.0)
        delta = tl.load(upstream + at, mask=ok, other=0.0) + carried
        d_c = tl.zeros((ROWS, COLUMNS), tl.float32)
        if WRITE:
            d_c = delta * f * (1 - c * c)
        difference = c - h if CARRY else c
        d_f = delta * difference
        if CARRY:
            carried = (1 - f) * delta
        else:
            carried = tl.zeros((ROWS, COLUMNS), tl.float32)
        if CANDIDATE:
            s = product(d_c, w_h, PRECISION)
            d_f += s * h
            carried += f * s
        d_f = d_f * f * (1 - f)
        if GATE:
            carried += product(d_f, w_f, PRECISION)
        # The inputs of both state products, h_{t-1} and h_{t-1} f_t, for the weights' gradients.
        tl.store(before + at, h, mask=ok)
        tl.store(reset + at, h * f, mask=ok)
        tl.store(dprojected + at_projected, d_f, mask=ok)
        tl.store(dprojected + at_projected + H, d_c, mask=ok)
    tl.store(dstart + at_row * H + i[None, :], carried, mask=ok)
