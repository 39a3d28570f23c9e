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

from lmzoo.kernels.gpu.blocks import load, numbers, program_int64
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
    lead = x.shape[:2] + (blocks,)
    stored = x.new_empty(lead + start.shape[2:])
    # An input may be expanded, as a b that is the same for all steps.
    read = [tensor.contiguous() for tensor in tensors]
    written = [y, end, stored]
    launch(_forward, grid, read + written + sizes, **chosen)
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
    inputs = (g, x, delta, rate, b, c, stored)
    arguments = [end] + [tensor.contiguous() for tensor in inputs]
    arguments += [dx, ddelta, drate, dmaps, dstart]
    launch(_backward, grid, arguments + sizes, **chosen)
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
    states = start.shape[2]
    chosen = constants(states, signed=signed)
    blocks = -(-width // chosen["COLUMNS"])
    grid = (members * rows, blocks)
    sizes = [rows, steps, states, width]
    return grid, sizes, chosen


def constants(states: int, *, signed: bool) -> dict[str, Any]:
    """Return the constants of both kernels, and their warps: one for 256 numbers."""
    rows = padded(states)
    fitting = min(COLUMNS, NUMBERS // rows)
    columns = max(1, fitting)
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
    m = program_int64(0)
    n = tl.arange(0, ROWS)[:, None]
    d = numbers(1, COLUMNS)[None, :]
    at = n * D + d
    ok = (n < N) & (d < D)
    # All sequences of a member share A.
    member = m // B
    rates = load(rate + member * N * D + at, ok)
    s = load(start + m * N * D + at, ok)
    for t in range(T):
        row = m * T + t
        # Every fourth state: backward computes the steps between again.
        kept = m * tl.cdiv(T, STEPS) + t // STEPS
        is_kept = ok & (t % STEPS == 0)
        tl.store(stored + kept * N * D + at, s, is_kept)
        delta_t = load(delta + row * D + d, d < D)
        x_t = load(x + row * D + d, d < D)
        b_t = load(b + row * N + n, n < N)
        c_t = load(c + row * N + n, n < N)
        decay = _decay(rates, delta_t, SIGNED)
        s = decay * s + b_t * (delta_t * x_t)
        y_t = tl.sum(c_t * s, 0)
        tl.store(y + row * D + d, y_t[None, :], d < D)
    tl.store(end + m * N * D + at, s, ok)


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
    m = program_int64(0)
    rows = tl.num_programs(0)
    n = tl.arange(0, ROWS)[:, None]
    d = numbers(1, COLUMNS)[None, :]
    at = n * D + d
    ok = (n < N) & (d < D)
    rates = load(rate + (m // B) * N * D + at, ok)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    carried = tl.zeros((ROWS, COLUMNS), tl.float32)
    if g_end is not None:
        carried = load(g_end + m * N * D + at, ok)
    blocks = tl.cdiv(T, STEPS)
    for back in range(blocks):
        kept = blocks - 1 - back
        block = m * blocks + kept
        s = load(stored + block * N * D + at, ok)
        # Forward again, from the state that was stored.
        steps = ()
        for k in tl.static_range(STEPS):
            row = m * T + kept * STEPS + k
            inside = kept * STEPS + k < T
            is_column = (d < D) & inside
            delta_t = load(delta + row * D + d, is_column)
            x_t = load(x + row * D + d, is_column)
            b_t = load(b + row * N + n, (n < N) & inside)
            steps = steps + ((s, delta_t, x_t, b_t),)
            decay = _decay(rates, delta_t, SIGNED)
            s = decay * s + b_t * (delta_t * x_t)
        # Back through the same steps; s is the state after each.
        for k in tl.static_range(STEPS - 1, -1, -1):
            row = m * T + kept * STEPS + k
            inside = kept * STEPS + k < T
            is_column = (d < D) & inside
            is_state = (n < N) & inside
            g_t = load(g + row * D + d, is_column)
            c_t = load(c + row * N + n, is_state)
            dc = tl.sum(g_t * s, 1)[:, None]
            s, delta_t, x_t, b_t = steps[k]
            gradient = carried + c_t * g_t
            u = delta_t * x_t
            db = tl.sum(gradient * u, 1)[:, None]
            to_b = dmaps + (2 * program_int64(1) * rows * T + row) * N + n
            tl.store(to_b, db, is_state)
            to_c = to_b + rows.to(tl.int64) * T * N
            tl.store(to_c, dc, is_state)
            du = tl.sum(gradient * b_t, 0)[None, :]
            decay = _decay(rates, delta_t, SIGNED)
            carried = gradient * decay
            dz = gradient * s * (decay + 1) if SIGNED else carried * s
            total -= dz * delta_t
            by_rate = tl.sum(dz * rates, 0)
            ddelta_t = du * x_t - by_rate[None, :]
            tl.store(dx + row * D + d, du * delta_t, is_column)
            tl.store(ddelta + row * D + d, ddelta_t, is_column)
    tl.store(drate + m * N * D + at, total, ok)
    tl.store(dstart + m * N * D + at, carried, ok)


@triton.jit
def _decay(rates, delta_t, SIGNED: tl.constexpr):
    decay = tl.exp(-rates * delta_t)
    return 2 * decay - 1 if SIGNED else decay
