"""The steps of the MGRU with the carry of its state."""

from collections.abc import Sequence
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import read_state
from lmzoo.kernels.gpu.steps.blocks import launch, position, step_before, step_product

Flags = tuple[bool, bool, bool, bool, str]
"""Whether there are the gate, the carry, the write and the keep, and what the gate reads."""


def forward(
    flags: Flags, precision: str, projected: Tensor, weight: Tensor, start: Tensor
) -> list[Tensor]:
    """Return the states, f and the candidates."""
    states, fs = torch.empty_like(projected), torch.empty_like(projected)
    for t in range(states.shape[2]):
        before, stride = step_before(start, states, t)
        args = projected[:, :, t], before, weight, states[:, :, t], fs[:, :, t], stride
        launch(_forward, states, *args, flags=flags, precision=precision)
    return [states, fs, projected.clone()]


def backward(
    flags: Flags,
    precision: str,
    upstream: Tensor,
    weight: Tensor,
    start: Tensor,
    saved: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the candidates, of start and of the gate's logits, and q."""
    states, fs, gs = saved
    dprojected, deltas, read = (torch.empty_like(upstream) for _ in range(3))
    kept, dstart, last = torch.empty_like(start), torch.empty_like(start), states.shape[2] - 1
    for t in range(last, -2, -1):
        # The last launch, t = -1, only adds the products of the first step, for start.
        i, after = max(t, 0), min(t + 1, last)
        h, stride = step_before(start, states, t + 1)
        before, stride_before = step_before(start, states, i)
        here = [tensor[:, :, i] for tensor in (fs, gs, dprojected, deltas, read)]
        args = upstream[:, :, i], deltas[:, :, after], h, before, weight, *here, kept, dstart
        all_flags = [*flags, t == last, t < 0]
        strides = stride, stride_before
        launch(_backward, states, *args, *strides, flags=all_flags, precision=precision)
    return dprojected, dstart, deltas, read


@triton.jit
@no_type_check
def _forward(
    g, before, weight, states, fs, S, B, T, H, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr, GATE: tl.constexpr, CARRY: tl.constexpr, WRITE: tl.constexpr,
    KEEP: tl.constexpr, READ: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p, row, exists, j, ok = position(B, H, ROWS, COLUMNS)
    at = row * T * H + j
    f = tl.full((ROWS, COLUMNS), 0.5, tl.float32)
    if GATE:
        a = step_product(
            before, S, row, exists, weight + p * H * H, H, 1, j, H, H, ROWS, COLUMNS, BLOCK,
            PRECISION, READ,
        )  # fmt: skip
        f = tl.sigmoid(a)
    h = tl.load(before + row * S + j, mask=ok, other=0.0)
    new = (1 - f) * h if CARRY else tl.zeros((ROWS, COLUMNS), tl.float32)
    if WRITE:
        new += f * tl.load(g + at, mask=ok, other=0.0)
    if KEEP:
        new += f * h
    tl.store(states + at, new, mask=ok)
    tl.store(fs + at, f, mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, after, own, before, weight, fs, gs, dprojected, deltas, read, kept, dstart, S, SB,
    B, T, H, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, GATE: tl.constexpr,
    CARRY: tl.constexpr, WRITE: tl.constexpr, KEEP: tl.constexpr, READ: tl.constexpr,
    LAST: tl.constexpr, START: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p, row, exists, j, ok = position(B, H, ROWS, COLUMNS)
    at, at_kept = row * T * H + j, row * H + j
    zeros = tl.zeros((ROWS, COLUMNS), tl.float32)
    carried = zeros
    if not LAST:
        carried = tl.load(kept + at_kept, mask=ok, other=0.0)
        if GATE:
            _, slope = read_state(tl.load(own + row * S + j, mask=ok, other=0.0), READ)
            s = step_product(
                after, T * H, row, exists, weight + p * H * H, 1, H, j, H, H, ROWS, COLUMNS,
                BLOCK, PRECISION,
            )  # fmt: skip
            carried += s * slope
    if START:
        tl.store(dstart + at_kept, carried, mask=ok)
    else:
        h = tl.load(before + row * SB + j, mask=ok, other=0.0)
        f = tl.load(fs + at, mask=ok, other=0.0)
        delta = tl.load(upstream + at, mask=ok, other=0.0) + carried
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
            q, _ = read_state(h, READ)
            tl.store(read + at, q, mask=ok)
            tl.store(deltas + at, d_f * f * (1 - f), mask=ok)
        tl.store(kept + at_kept, carried, mask=ok)
