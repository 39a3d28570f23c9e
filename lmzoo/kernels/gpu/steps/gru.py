"""The steps of the gated recurrent unit; with reset=before each is two kernels."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import tanh
from lmzoo.kernels.gpu.steps.blocks import launch, position, step_before, step_product

Flags = tuple[bool, bool]
"""Whether the reset comes before the product, and whether z keeps the state."""


def forward(
    flags: Flags,
    precision: str,
    projected: Tensor,
    weight: Tensor,
    bias: Tensor,
    start: Tensor,
) -> list[Tensor]:
    """Return the states, the gates and m."""
    gates = torch.empty_like(projected)
    states, m = projected.new_empty(2, *projected.shape[:-1], start.shape[-1]).unbind()
    for t in range(states.shape[2]):
        h, stride = step_before(start, states, t)
        written = states[:, :, t], gates[:, :, t], m[:, :, t]
        args = projected[:, :, t], h, weight, bias, *written, stride
        for second in (False, True) if flags[0] else (False,):
            all_flags = *flags, second
            launch(_forward, states, *args, flags=all_flags, precision=precision)
    return [states, gates, m]


def backward(
    flags: Flags,
    precision: str,
    upstream: Tensor,
    weight: Tensor,
    start: Tensor,
    states: Tensor,
    gates: Tensor,
    m: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the projected inputs and of start."""
    deltas, inner = torch.empty_like(gates), torch.empty_like(states)
    kept, last, width = torch.empty_like(start), states.shape[2] - 1, start.shape[-1]
    for t in range(last, -1, -1):
        after = min(t + 1, last)
        h, stride = step_before(start, states, t)
        saved = gates[:, :, t], m[:, :, t]
        written = deltas[:, :, t], inner[:, :, t], kept
        args = upstream[:, :, t], deltas[:, :, after], inner[:, :, after], h, weight
        for second in (False, True) if flags[0] else (False,):
            all_flags = *flags, t == last, second
            rest = *saved, *written, stride
            launch(_backward, states, *args, *rest, flags=all_flags, precision=precision)
    split = 2 * width
    kept = kept + deltas[:, :, 0, :split] @ weight[..., :split].mT
    if not flags[0]:
        kept = kept + inner[:, :, 0] @ weight[..., split:].mT
    return deltas, kept


@triton.jit
@no_type_check
def _forward(
    projected, before, weight, bias, states, gates, m_out, S, B, T, H, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, BEFORE: tl.constexpr, Z_KEEPS: tl.constexpr,
    SECOND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p, row, exists, j, ok = position(B, H, ROWS, COLUMNS)
    G, w = 3 * H, weight + p * 3 * H * H
    at, at_m = row * T * G + j, row * T * H + j
    h = tl.load(before + row * S + j, mask=ok, other=0.0)
    if SECOND:
        z = tl.load(gates + at + H, mask=ok, other=0.0)
    else:
        a = tl.load(projected + at, mask=ok, other=0.0)
        a += step_product(before, S, row, exists, w, G, 1, j, H, H, ROWS, COLUMNS, BLOCK, PRECISION)
        r = tl.sigmoid(a)
        a = tl.load(projected + at + H, mask=ok, other=0.0)
        a += step_product(
            before, S, row, exists, w + H, G, 1, j, H, H, ROWS, COLUMNS, BLOCK, PRECISION
        )
        z = tl.sigmoid(a)
        tl.store(gates + at, r, mask=ok)
        tl.store(gates + at + H, z, mask=ok)
    if BEFORE and not SECOND:
        tl.store(m_out + at_m, r * h, mask=ok)
    else:
        a = tl.load(projected + at + 2 * H, mask=ok, other=0.0)
        left, stride = before, S
        if SECOND:
            left, stride = m_out, T * H
        s = step_product(
            left, stride, row, exists, w + 2 * H, G, 1, j, H, H, ROWS, COLUMNS, BLOCK, PRECISION
        )
        if SECOND:
            n = tanh(a + s)
        else:
            m = s + tl.load(bias + p * H + j, mask=j < H, other=0.0)
            n = tanh(a + r * m)
            tl.store(m_out + at_m, m, mask=ok)
        keep = z if Z_KEEPS else 1 - z
        tl.store(gates + at + 2 * H, n, mask=ok)
        tl.store(states + at_m, keep * h + (1 - keep) * n, mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, after, inner_after, before, weight, gates, m_in, deltas, inner, kept, S, B, T, H,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, BEFORE: tl.constexpr,
    Z_KEEPS: tl.constexpr, LAST: tl.constexpr, SECOND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p, row, exists, j, ok = position(B, H, ROWS, COLUMNS)
    G, w = 3 * H, weight + p * 3 * H * H
    at, at_m, at_kept = row * T * G + j, row * T * H + j, row * H + j
    h = tl.load(before + row * S + j, mask=ok, other=0.0)
    r = tl.load(gates + at, mask=ok, other=0.0)
    if SECOND:
        # The gradient of m = r h: the product with d_n, which the first kernel wrote.
        s = step_product(
            deltas + 2 * H, T * G, row, exists, w + 2 * H, 1, G, j, H, H, ROWS, COLUMNS, BLOCK,
            PRECISION,
        )  # fmt: skip
        tl.store(deltas + at, s * h * r * (1 - r), mask=ok)
        carried = tl.load(kept + at_kept, mask=ok, other=0.0) + s * r
    else:
        delta = tl.load(upstream + at_m, mask=ok, other=0.0)
        if not LAST:
            delta += tl.load(kept + at_kept, mask=ok, other=0.0)
            delta += step_product(
                after, T * G, row, exists, w, 1, G, j, 2 * H, H, ROWS, COLUMNS, BLOCK, PRECISION
            )
            if not BEFORE:
                delta += step_product(
                    inner_after, T * H, row, exists, w + 2 * H, 1, G, j, H, H, ROWS, COLUMNS,
                    BLOCK, PRECISION,
                )  # fmt: skip
        z = tl.load(gates + at + H, mask=ok, other=0.0)
        n = tl.load(gates + at + 2 * H, mask=ok, other=0.0)
        keep = z if Z_KEEPS else 1 - z
        d_n = delta * (1 - keep) * (1 - n * n)
        d_z = delta * (h - n) * z * (1 - z)
        tl.store(deltas + at + H, d_z if Z_KEEPS else -d_z, mask=ok)
        tl.store(deltas + at + 2 * H, d_n, mask=ok)
        if not BEFORE:
            m = tl.load(m_in + at_m, mask=ok, other=0.0)
            tl.store(inner + at_m, d_n * r, mask=ok)
            tl.store(deltas + at, d_n * r * m * (1 - r), mask=ok)
        carried = delta * keep
    tl.store(kept + at_kept, carried, mask=ok)
