"""The kernels of `functional/selective_scan.py`, in its symbols, for all pack members at once.

x, Δ and y (P, B, T, D); A (P, N, D); b and c (P, B, T, N); S_0 and S_T (P, B, N, D). A program
computes some channels of one sequence, with its state in registers. Forward, the state before every
fourth step is stored; backward, the steps after it are computed again. A step after the last has
Δ = 0 and g = 0, which change neither state nor gradient.
"""

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.launch import launch
from lmzoo.kernels.gpu.scan import padded

STEPS = 4
COLUMNS = 16
NUMBERS = 1024
"""Steps from one stored state to the next; most channels and most numbers of a program."""


def forward(
    tensors: Sequence[Tensor],
    *,
    signed: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, S_T and stored states from x, Δ, A, b, c and S_0."""
    x = tensors[0]
    start = tensors[5]
    grid, sizes, chosen = _program(x, start, signed=signed)
    y = x.new_empty(x.shape)
    end = x.new_empty(start.shape)
    blocks = -(-x.shape[2] // STEPS)
    stored = x.new_empty(x.shape[:2] + (blocks,) + start.shape[2:])
    # An input may be expanded, as a b that is the same for all steps.
    read = [tensor.contiguous() for tensor in tensors]
    launch(_forward, grid, read + [y, end, stored] + sizes, **chosen)
    return y, end, stored


def backward(
    g: Tensor, g_end: Tensor | None, tensors: Sequence[Tensor], *, signed: bool
) -> tuple[Tensor, ...]:
    """Return the gradients of x, Δ, A, b, c and S_0 from these and the stored states."""
    x, delta, rate, b, c, start, stored = tensors
    grid, sizes, chosen = _program(x, start, signed=signed)
    dx = x.new_empty(x.shape)
    ddelta = x.new_empty(x.shape)
    drate = x.new_empty(start.shape)
    dstart = x.new_empty(start.shape)
    # Programs of one sequence write their own sums of b and c: no atomic additions.
    dmaps = x.new_empty((grid[1], 2) + b.shape)
    # Nobody may have read the last state, which then has no gradient.
    end = None
    if g_end is not None:
        end = g_end.contiguous()
    read = [tensor.contiguous() for tensor in (g, x, delta, rate, b, c, stored)]
    written = [dx, ddelta, drate, dmaps, dstart]
    launch(_backward, grid, [end] + read + written + sizes, **chosen)
    db, dc = dmaps.sum(0)
    # All sequences of a member share A: each program has written its own part.
    return dx, ddelta, drate.sum(1), db, dc, dstart


def _program(
    x: Tensor,
    start: Tensor,
    *,
    signed: bool,
) -> tuple[Any, Any, dict[str, Any]]:
    members, rows, steps, width = x.shape
    chosen = constants(start.shape[2], signed=signed)
    grid = (members * rows, -(-width // chosen["COLUMNS"]))
    sizes = [rows, steps, start.shape[2], start.shape[3]]
    return grid, sizes, chosen


def constants(states: int, *, signed: bool) -> dict[str, Any]:
    """Return the constants of both kernels, and their warps: one for 256 numbers."""
    rows = padded(states)
    columns = max(1, min(COLUMNS, NUMBERS // rows))
    return {
        "SIGNED": signed,
        "ROWS": rows,
        "COLUMNS": columns,
        "STEPS": STEPS,
        "num_warps": min(8, rows * columns // 256),
    }


@triton.jit
def _forward(
    x,
    delta,
    rate,
    b,
    c,
    start,
    y,
    end,
    stored,
    B,
    T,
    N,
    D,
    SIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEPS: tl.constexpr,
):
    m = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, ROWS)[:, None]
    d = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    at = n * D + d
    ok = (n < N) & (d < D)
    rates = tl.load(rate + (m // B) * N * D + at, mask=ok, other=0.0)
    s = tl.load(start + m * N * D + at, mask=ok, other=0.0)
    for t in range(T):
        row = m * T + t
        # Every fourth state: backward computes the steps between again.
        kept = m * tl.cdiv(T, STEPS) + t // STEPS
        tl.store(stored + kept * N * D + at, s, mask=ok & (t % STEPS == 0))
        delta_t = tl.load(delta + row * D + d, mask=d < D, other=0.0)
        x_t = tl.load(x + row * D + d, mask=d < D, other=0.0)
        b_t = tl.load(b + row * N + n, mask=n < N, other=0.0)
        c_t = tl.load(c + row * N + n, mask=n < N, other=0.0)
        s = _decay(rates, delta_t, SIGNED) * s + b_t * (delta_t * x_t)
        tl.store(y + row * D + d, tl.sum(c_t * s, axis=0)[None, :], mask=d < D)
    tl.store(end + m * N * D + at, s, mask=ok)


# A step after the last changes nothing, so that T need be no multiple of four.
@triton.jit
def _backward(
    g_end,
    g,
    x,
    delta,
    rate,
    b,
    c,
    stored,
    dx,
    ddelta,
    drate,
    dmaps,
    dstart,
    B,
    T,
    N,
    D,
    SIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEPS: tl.constexpr,
):
    m = tl.program_id(0).to(tl.int64)
    rows = tl.num_programs(0)
    n = tl.arange(0, ROWS)[:, None]
    d = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    at = n * D + d
    ok = (n < N) & (d < D)
    rates = tl.load(rate + (m // B) * N * D + at, mask=ok, other=0.0)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    carried = tl.zeros((ROWS, COLUMNS), tl.float32)
    if g_end is not None:
        carried = tl.load(g_end + m * N * D + at, mask=ok, other=0.0)
    for back in range(tl.cdiv(T, STEPS)):
        kept = tl.cdiv(T, STEPS) - 1 - back
        s = tl.load(
            stored + (m * tl.cdiv(T, STEPS) + kept) * N * D + at,
            mask=ok,
            other=0.0,
        )
        # Forward again, from the state that was stored.
        steps = ()
        for k in tl.static_range(STEPS):
            row = m * T + kept * STEPS + k
            inside = kept * STEPS + k < T
            delta_t = tl.load(delta + row * D + d, mask=(d < D) & inside, other=0.0)
            x_t = tl.load(x + row * D + d, mask=(d < D) & inside, other=0.0)
            b_t = tl.load(b + row * N + n, mask=(n < N) & inside, other=0.0)
            steps = steps + ((s, delta_t, x_t, b_t),)
            s = _decay(rates, delta_t, SIGNED) * s + b_t * (delta_t * x_t)
        # Back through the same steps; s is the state after each.
        for k in tl.static_range(STEPS - 1, -1, -1):
            row = m * T + kept * STEPS + k
            inside = kept * STEPS + k < T
            g_t = tl.load(g + row * D + d, mask=(d < D) & inside, other=0.0)
            c_t = tl.load(c + row * N + n, mask=(n < N) & inside, other=0.0)
            dc = tl.sum(g_t * s, axis=1)[:, None]
            s, delta_t, x_t, b_t = steps[k]
            gradient = carried + c_t * g_t
            db = tl.sum(gradient * (delta_t * x_t), axis=1)[:, None]
            to_b = dmaps + (2 * tl.program_id(1).to(tl.int64) * rows * T + row) * N + n
            tl.store(to_b, db, mask=(n < N) & inside)
            tl.store(to_b + rows.to(tl.int64) * T * N, dc, mask=(n < N) & inside)
            du = tl.sum(gradient * b_t, axis=0)[None, :]
            decay = _decay(rates, delta_t, SIGNED)
            carried = gradient * decay
            dz = gradient * s * (decay + 1) if SIGNED else carried * s
            total -= dz * delta_t
            ddelta_t = du * x_t - tl.sum(dz * rates, axis=0)[None, :]
            tl.store(dx + row * D + d, du * delta_t, mask=(d < D) & inside)
            tl.store(ddelta + row * D + d, ddelta_t, mask=(d < D) & inside)
    tl.store(drate + m * N * D + at, total, mask=ok)
    tl.store(dstart + m * N * D + at, carried, mask=ok)


@triton.jit
def _decay(rates, delta_t, SIGNED: tl.constexpr):
    decay = tl.exp(-rates * delta_t)
    return 2 * decay - 1 if SIGNED else decay
