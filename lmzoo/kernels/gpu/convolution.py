"""The kernels of `functional/convolution.py`, in its symbols, for all pack members at once.

x, y (P, B, T, C); the past (P, B, W − 1, C); w (P, C, W). A program computes a block of channels of
one sequence; forward, of a block of steps.
"""

import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.launch import launch

STEPS = 16
CHANNELS = 64
"""Steps and channels of a block."""


def forward(x: Tensor, past: Tensor, taps: Tensor) -> Tensor:
    """Return y."""
    members, batch, steps, columns = x.shape
    y = x.new_empty(x.shape)
    rows = _rows(x)
    grid = members * batch, -(-columns // CHANNELS), -(-steps // STEPS)
    tensors = rows, past.contiguous(), taps.contiguous(), y
    sizes = batch, steps, columns, rows.stride(0)
    launch(_forward, grid, *tensors, *sizes, taps.shape[2], STEPS, CHANNELS)
    return y


def backward(g: Tensor, x: Tensor, past: Tensor, taps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, the past and w; those of w are added in a fixed order."""
    members, batch, steps, columns = x.shape
    dx = x.new_empty(x.shape)
    dpast = past.new_empty(past.shape)
    rows = _rows(x)
    parts = taps.new_empty(members, batch, *taps.shape[1:])
    width = taps.shape[2]
    grid = members * batch, -(-columns // CHANNELS)
    tensors = (
        g.contiguous(),
        rows,
        past.contiguous(),
        taps.contiguous(),
        dx,
        dpast,
        parts,
    )
    sizes = (
        batch,
        steps,
        columns,
        rows.stride(0),
        width,
        1 << (width - 1).bit_length(),
    )
    launch(_backward, grid, *tensors, *sizes, STEPS, CHANNELS)
    return dx, dpast, parts.sum(1)


def _rows(x: Tensor) -> Tensor:
    """Return the channels of each step, in place if the steps are equally far apart."""
    rows = x.flatten(0, 2)
    if rows.stride(1) == 1:
        return rows
    return rows.contiguous()


@triton.jit
def _forward(
    x,
    past,
    taps,
    y,
    B,
    T,
    C,
    S,
    W: tl.constexpr,
    STEPS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    t = tl.program_id(2) * STEPS + tl.arange(0, STEPS)[:, None]
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    total = tl.zeros((STEPS, CHANNELS), tl.float32)
    for j in tl.static_range(W):
        tap = tl.load(taps + ((row // B) * C + c) * W + j, mask=c < C, other=0.0)
        s = t + j
        ok = (t < T) & (c < C)
        before = tl.load(past + (row * (W - 1) + s) * C + c, mask=ok & (s < W - 1), other=0.0)
        s -= W - 1
        total += tap * (before + tl.load(x + (row * T + s) * S + c, mask=ok & (s >= 0), other=0.0))
    tl.store(y + (row * T + t) * C + c, total, mask=(t < T) & (c < C))


@triton.jit
def _backward(
    g,
    x,
    past,
    taps,
    dx,
    dpast,
    parts,
    B,
    T,
    C,
    S,
    W: tl.constexpr,
    TAPS: tl.constexpr,
    STEPS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    k = tl.arange(0, TAPS)[:, None]
    dtaps = tl.zeros((TAPS, CHANNELS), tl.float32)
    for begin in range(0, T + W - 1, STEPS):
        m = begin + tl.arange(0, STEPS)[:, None]
        s = m - (W - 1)
        is_past = (m < W - 1) & (c < C)
        is_x = (s >= 0) & (s < T) & (c < C)
        z = tl.load(past + (row * (W - 1) + m) * C + c, mask=is_past, other=0.0)
        z += tl.load(x + (row * T + s) * S + c, mask=is_x, other=0.0)
        dz = tl.zeros((STEPS, CHANNELS), tl.float32)
        for j in tl.static_range(W):
            tap = tl.load(taps + ((row // B) * C + c) * W + j, mask=c < C, other=0.0)
            ok = (m >= j) & (m - j < T) & (c < C)
            upstream = tl.load(g + (row * T + m - j) * C + c, mask=ok, other=0.0)
            dz += tap * upstream
            dtaps += tl.where(k == j, tl.sum(z * upstream, axis=0)[None, :], 0.0)
        tl.store(dpast + (row * (W - 1) + m) * C + c, dz, mask=is_past)
        tl.store(dx + (row * T + s) * C + c, dz, mask=is_x)
    tl.store(parts + (row * C + c) * W + k, dtaps, mask=(k < W) & (c < C))
