"""The kernels of `train/pack_parameters.py`, in its symbols; arrays are (P, N), one row per member.

The first launch adds the squares of the gradients in `PARTS` parts per member and counts the step;
the second clips and updates. Parts are added in a fixed order, so results are reproducible.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.launch import launch

PARTS = 64
"""Programs of a member."""
BLOCK = 256


def adam_step(
    x: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    steps: Tensor,
    rates: Tensor,
    clips: Tensor,
    decays: Tensor,
    columns: Tensor,
    *,
    decoupled: bool,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """Clip g, update every row of x, m and v, and increment the step counts; all contiguous."""
    members, count = x.shape
    squares = x.new_empty(members, PARTS)
    grid = (PARTS, members)
    launch(_add_squares, grid, g, steps, squares, count, PARTS, BLOCK)
    launch(
        _update,
        grid,
        x,
        g,
        m,
        v,
        steps,
        rates,
        clips,
        decays,
        columns,
        squares,
        count,
        PARTS,
        BLOCK,
        decoupled,
        *betas,
        math.log(betas[0]) if betas[0] else -math.inf,
        math.log(betas[1]) if betas[1] else -math.inf,
        eps,
    )


@triton.jit
def _add_squares(g, steps, squares, N, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    p = tl.program_id(1).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in range(part * BLOCK, N, PARTS * BLOCK):
        i = begin + tl.arange(0, BLOCK)
        d = tl.load(g + p * N + i, mask=i < N, other=0.0)
        total += d * d
    tl.store(squares + p * PARTS + part, tl.sum(total))
    if part == 0:
        tl.store(steps + p, tl.load(steps + p) + 1)


@triton.jit
def _update(
    x,
    g,
    m,
    v,
    steps,
    rates,
    clips,
    decays,
    columns,
    squares,
    N,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    DECOUPLED: tl.constexpr,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    LOG_BETA1: tl.constexpr,
    LOG_BETA2: tl.constexpr,
    EPS: tl.constexpr,
):
    part = tl.program_id(0)
    p = tl.program_id(1).to(tl.int64)
    norm = tl.sqrt(tl.sum(tl.load(squares + p * PARTS + tl.arange(0, PARTS))))
    ratio = tl.load(clips + p) / (norm + 1e-6)
    clip = tl.where(ratio > 1, 1.0, ratio)  # NaN stays NaN
    rate = tl.load(rates + p)
    decay = tl.load(decays + p)
    # In float64, because 1 − βⁿ has few digits left in float32.
    n = tl.load(steps + p).to(tl.float64)
    eta = (rate.to(tl.float64) / (1 - tl.exp(n * LOG_BETA1))).to(tl.float32)
    scale = (1 / tl.sqrt(1 - tl.exp(n * LOG_BETA2))).to(tl.float32)
    for begin in range(part * BLOCK, N, PARTS * BLOCK):
        i = begin + tl.arange(0, BLOCK)
        at = p * N + i
        ok = i < N
        weight = tl.load(x + at, mask=ok, other=0.0)
        d = tl.load(g + at, mask=ok, other=0.0) * clip
        own = decay * tl.load(columns + i, mask=ok, other=0.0)
        if DECOUPLED:
            weight *= 1 - rate * own
        else:
            d += own * weight
        mean = tl.load(m + at, mask=ok, other=0.0)
        mean += (1 - BETA1) * (d - mean)
        square = BETA2 * tl.load(v + at, mask=ok, other=0.0) + (1 - BETA2) * d * d
        weight -= eta * mean / (tl.sqrt(square) * scale + EPS)
        tl.store(x + at, weight, mask=ok)
        tl.store(m + at, mean, mask=ok)
        tl.store(v + at, square, mask=ok)
