"""The steps of the minimal gated unit: one kernel for the gate, one for the candidate.

Without the candidate's weight each step is one kernel.
"""

from collections.abc import Sequence
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import tanh
from lmzoo.kernels.gpu.steps.blocks import launch, position, step_before, step_product

Flags = tuple[bool, bool, bool, bool]
"""Whether there are hf, hh, the carry, and the write."""


def forward(
    flags: Flags, precision: str, projected: Tensor, hf: Tensor, hh: Tensor, start: Tensor
) -> list[Tensor]:
    """Return the states, f and c."""
    shape = *projected.shape[:-1], start.shape[-1]
    states, fs, cs = projected.new_empty(3, *shape).unbind()
    reset = torch.empty_like(start)
    for t in range(states.shape[2]):
        before, stride = step_before(start, states, t)
        written = states[:, :, t], fs[:, :, t], cs[:, :, t], reset
        args = projected[:, :, t], before, hf, hh, *written, stride
        for second in (False, True) if flags[1] else (False,):
            launch(_forward, states, *args, flags=[*flags, second], precision=precision)
    return [states, fs, cs]


def backward(
    flags: Flags,
    precision: str,
    upstream: Tensor,
    hf: Tensor,
    hh: Tensor,
    start: Tensor,
    saved: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the projected inputs and of start, h_{t-1}, and h_{t-1} f_t."""
    states, fs, cs = saved
    dprojected = upstream.new_empty(*upstream.shape[:-1], 2 * upstream.shape[-1])
    reads, resets = torch.empty_like(states), torch.empty_like(states)
    kept, last, width = torch.empty_like(start), states.shape[2] - 1, start.shape[-1]
    for t in range(last, -1, -1):
        before, stride = step_before(start, states, t)
        written = dprojected[:, :, t], reads[:, :, t], resets[:, :, t], kept
        args = upstream[:, :, t], dprojected[:, :, min(t + 1, last)], before, hf, hh
        for second in (False, True) if flags[1] else (False,):
            rest = fs[:, :, t], cs[:, :, t], *written, stride
            all_flags = [*flags, t == last, second]
            launch(_backward, states, *args, *rest, flags=all_flags, precision=precision)
    if flags[0]:
        kept = kept + dprojected[:, :, 0, :width] @ hf.mT
    return dprojected, kept, reads, resets


@triton.jit
@no_type_check
def _forward(
    projected, before, hf, hh, states, fs, cs, reset, S, B, T, H, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, GATE: tl.constexpr, CANDIDATE: tl.constexpr,
    CARRY: tl.constexpr, WRITE: tl.constexpr, SECOND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p, row, exists, j, ok = position(B, H, ROWS, COLUMNS)
    at, at_projected = row * T * H + j, row * T * 2 * H + j
    h = tl.load(before + row * S + j, mask=ok, other=0.0)
    if SECOND:
        f = tl.load(fs + at, mask=ok, other=0.0)
    else:
        a = tl.load(projected + at_projected, mask=ok, other=0.0)
        if GATE:
            a += step_product(
                before, S, row, exists, hf + p * H * H, H, 1, j, H, H, ROWS, COLUMNS, BLOCK,
                PRECISION,
            )  # fmt: skip
        f = tl.sigmoid(a)
        tl.store(fs + at, f, mask=ok)
    if CANDIDATE and not SECOND:
        tl.store(reset + row * H + j, h * f, mask=ok)
    else:
        c = tl.zeros((ROWS, COLUMNS), tl.float32)
        if WRITE:
            a = tl.load(projected + at_projected + H, mask=ok, other=0.0)
            if CANDIDATE:
                a += step_product(
                    reset, H, row, exists, hh + p * H * H, H, 1, j, H, H, ROWS, COLUMNS, BLOCK,
                    PRECISION,
                )  # fmt: skip
            c = tanh(a)
        tl.store(cs + at, c, mask=ok)
        tl.store(states + at, f * c + (1 - f) * h if CARRY else f * c, mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, after, before, hf, hh, fs, cs, dprojected, reads, resets, kept, S, B, T, H,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, GATE: tl.constexpr,
    CANDIDATE: tl.constexpr, CARRY: tl.constexpr, WRITE: tl.constexpr, LAST: tl.constexpr,
    SECOND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p, row, exists, j, ok = position(B, H, ROWS, COLUMNS)
    at, at_projected, at_kept = row * T * H + j, row * T * 2 * H + j, row * H + j
    h = tl.load(before + row * S + j, mask=ok, other=0.0)
    f = tl.load(fs + at, mask=ok, other=0.0)
    c = tl.load(cs + at, mask=ok, other=0.0)
    if SECOND:
        delta = tl.load(kept + at_kept, mask=ok, other=0.0)
    else:
        delta = tl.load(upstream + at, mask=ok, other=0.0)
        if not LAST:
            delta += tl.load(kept + at_kept, mask=ok, other=0.0)
            if GATE:
                delta += step_product(
                    after, T * 2 * H, row, exists, hf + p * H * H, 1, H, j, H, H, ROWS, COLUMNS,
                    BLOCK, PRECISION,
                )  # fmt: skip
        d_c = tl.zeros((ROWS, COLUMNS), tl.float32)
        if WRITE:
            d_c = delta * f * (1 - c * c)
        tl.store(dprojected + at_projected + H, d_c, mask=ok)
    if CANDIDATE and not SECOND:
        tl.store(kept + at_kept, delta, mask=ok)
    else:
        d_f = delta * (c - h) if CARRY else delta * c
        carried = (1 - f) * delta if CARRY else tl.zeros((ROWS, COLUMNS), tl.float32)
        if SECOND:
            s = step_product(
                dprojected + H, T * 2 * H, row, exists, hh + p * H * H, 1, H, j, H, H, ROWS,
                COLUMNS, BLOCK, PRECISION,
            )  # fmt: skip
            d_f += s * h
            carried += f * s
        tl.store(dprojected + at_projected, d_f * f * (1 - f), mask=ok)
        # The inputs of both state products, for the weights' gradients.
        tl.store(reads + at, h, mask=ok)
        tl.store(resets + at, h * f, mask=ok)
        tl.store(kept + at_kept, carried, mask=ok)
