r"""The kernels of the minimal gated unit and of the MGRU that carries its last state.

In the symbols of `kernels/cpu/mgu.py`. A program computes `ROWS` sequences of one pack member for
all steps; the recurrent weights stay on the chip. `projected` has the columns x W_xf + b_f and
x W_xh + b_h, zero where cut; or, if they are no `pair`, the columns of the activated candidate. The
kernel returns the states h.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import load_weight, product, read_state, tanh, tile
from lmzoo.kernels.gpu.scan import GpuRecurrence, weight_gradient


@dataclass(frozen=True)
class MGUGpuScan(GpuRecurrence):
    """Weights hf and hh, those that are not cut."""

    pair: bool = True
    gate: bool = True
    """Whether there is hf."""
    candidate: bool = True
    """Whether there is hh."""
    carry: bool = True
    write: bool = True
    keep: bool = False
    read: str = "raw"

    @property
    def num_weights(self) -> int:  # type: ignore[override]
        return 1 + self.pair

    def forward(self, projected: Tensor, start: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        shape = *projected.shape[:-1], start.shape[-1]
        saved = [projected.new_empty(shape) for _ in range(3)]
        pair = self._pair(weights, start)
        self.launch(_forward, saved[0], projected, *pair, start, *saved, flags=self._flags)
        return saved

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> list[Tensor]:
        width = upstream.shape[-1]
        dprojected = upstream.new_empty(*upstream.shape[:-1], (1 + self.pair) * width)
        deltas = dprojected if self.pair else torch.empty_like(upstream)
        read = torch.empty_like(upstream)
        reset = torch.empty_like(upstream) if self.candidate else read
        dstart = torch.empty_like(start)
        tensors = upstream, *self._pair(weights, start), start, *saved
        rest = dprojected, dstart, deltas, read, reset
        self.launch(_backward, upstream, *tensors, *rest, flags=self._flags)
        gradients = [weight_gradient(read, deltas[..., :width])] if self.gate else []
        if self.candidate:
            gradients.append(weight_gradient(reset, dprojected[..., -width:]))
        return [dprojected, dstart, *gradients]

    @property
    def _flags(self) -> tuple[int, bool, bool, bool, bool, bool, str]:
        kinds = self.gate, self.candidate, self.carry, self.write, self.keep
        return 1 + self.pair, *kinds, self.read

    def _pair(self, weights: Sequence[Tensor], start: Tensor) -> tuple[Tensor, Tensor]:
        """Return hf and hh; a weight that is cut is another tensor, which is never read."""
        return next(iter(weights), start), weights[-1] if weights else start


@triton.jit
@no_type_check
def _forward(
    projected, hf, hh, start, states, fs, cs, B, T, H, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    PARTS: tl.constexpr, GATE: tl.constexpr, CANDIDATE: tl.constexpr, CARRY: tl.constexpr,
    WRITE: tl.constexpr, KEEP: tl.constexpr, READ: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    i, at_row, ok = tile(p, B, H, COLUMNS, ROWS)
    if GATE:
        w_f = load_weight(hf, p, H, H, 0, COLUMNS, False, PRECISION)
    if CANDIDATE:
        w_h = load_weight(hh, p, H, H, 0, COLUMNS, False, PRECISION)
    h = tl.load(start + at_row * H + i, mask=ok, other=0.0)
    for t in range(T):
        at = (at_row * T + t) * H + i
        at_projected = (at_row * T + t) * PARTS * H + i
        a = tl.zeros((ROWS, COLUMNS), tl.float32)
        if PARTS == 2:
            a += tl.load(projected + at_projected, mask=ok, other=0.0)
        if GATE:
            q, _ = read_state(h, READ)
            a += product(q, w_f, PRECISION)
        f = tl.sigmoid(a)
        c = tl.zeros((ROWS, COLUMNS), tl.float32)
        if WRITE:
            c = tl.load(projected + at_projected + (PARTS - 1) * H, mask=ok, other=0.0)
            if CANDIDATE:
                c += product(h * f, w_h, PRECISION)
            if PARTS == 2:
                c = tanh(c)
        j = h
        h = f * c + (1 - f) * j if CARRY else f * c
        if KEEP:
            h += f * j
        tl.store(states + at, h, mask=ok)
        tl.store(fs + at, f, mask=ok)
        tl.store(cs + at, c, mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, hf, hh, start, states, fs, cs, dprojected, dstart, deltas, read, reset, B, T, H,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr, GATE: tl.constexpr,
    CANDIDATE: tl.constexpr, CARRY: tl.constexpr, WRITE: tl.constexpr, KEEP: tl.constexpr,
    READ: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    i, at_row, ok = tile(p, B, H, COLUMNS, ROWS)
    if GATE:
        w_f = load_weight(hf, p, H, H, 0, COLUMNS, True, PRECISION)
    if CANDIDATE:
        w_h = load_weight(hh, p, H, H, 0, COLUMNS, True, PRECISION)
    h_0 = tl.load(start + at_row * H + i, mask=ok, other=0.0)
    carried = tl.zeros((ROWS, COLUMNS), tl.float32)
    # Three loads ahead are the default. With two, registers are enough at width 32 too, and the
    # shared memory of the MGRU is that of one weight.
    for back in tl.range(0, T, num_stages=2 if COLUMNS < 64 or PARTS == 1 else 3):
        t = T - 1 - back
        at = (at_row * T + t) * H + i
        at_projected = (at_row * T + t) * PARTS * H + i
        h = tl.load(states + at - H, mask=ok & (t > 0), other=0.0)
        h = tl.where(t > 0, h, h_0)
        f = tl.load(fs + at, mask=ok, other=0.0)
        delta = tl.load(upstream + at, mask=ok, other=0.0) + carried
        zeros = tl.zeros((ROWS, COLUMNS), tl.float32)
        d_f, carried, d_c = zeros, zeros, zeros
        if CARRY:
            d_f -= delta * h
            carried += (1 - f) * delta
        if KEEP:
            d_f += delta * h
            carried += f * delta
        if WRITE:
            c = tl.load(cs + at, mask=ok, other=0.0)
            d_f += delta * c
            d_c = f * delta
            if PARTS == 2:
                d_c *= 1 - c * c
        if CANDIDATE:
            s = product(d_c, w_h, PRECISION)
            d_f += s * h
            carried += f * s
            tl.store(reset + at, h * f, mask=ok)
        d_f = d_f * f * (1 - f)
        if GATE:
            # What the gate read, and h_{t-1} f_t above, are needed for the weights' gradients.
            q, slope = read_state(h, READ)
            carried += product(d_f, w_f, PRECISION) * slope
            tl.store(read + at, q, mask=ok)
        tl.store(deltas + at_projected, d_f, mask=ok)
        tl.store(dprojected + at_projected + (PARTS - 1) * H, d_c, mask=ok)
    tl.store(dstart + at_row * H + i, carried, mask=ok)
