"""The kernels of `functional/token_scores.py`: one launch forward and one backward."""

import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.launch import launch
from lmzoo.kernels.gpu.rows import strides

BLOCK = 1024


def forward(values: Tensor, lengths: Tensor, clamp: int) -> Tensor:
    """Return the scores (P, B, T) from contiguous values (P, B, T - 1) and lengths (P, B)."""
    *rows, scored = values.shape
    scores = values.new_empty(*rows, scored + 1)
    count = scores.numel()
    grid = (-(-count // BLOCK),)
    launch(_forward, grid, values, lengths, scores, count, scored + 1, clamp, BLOCK)
    return scores


def backward(g: Tensor, values: Tensor, lengths: Tensor, clamp: int) -> Tensor:
    """Return the gradient of the values; g (P, B, T) has any strides, often those of one number."""
    gradient = values.new_empty(values.shape)
    count = values.numel()
    sizes = count, g.shape[1], *strides(g)
    grid = (-(-count // BLOCK),)
    launch(_backward, grid, g, values, lengths, gradient, *sizes, clamp, BLOCK)
    return gradient


@triton.jit
def _forward(values, lengths, scores, N, T, CLAMP: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = n // T
    t = n % T
    scored = (n < N) & (t > 0) & (t < tl.load(lengths + row, mask=n < N, other=0))
    value = tl.load(values + n - row - 1, mask=scored, other=0.0)
    if CLAMP:
        value = tl.where(value > 0, 0.0, value)  # NaN stays NaN
    tl.store(scores + n, value, mask=n < N)


@triton.jit
def _backward(
    g,
    values,
    lengths,
    gradient,
    N,
    B,
    T,
    SP,
    SB,
    ST,
    CLAMP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = n // (T - 1)
    t = n % (T - 1) + 1
    used = (n < N) & (t < tl.load(lengths + row, mask=n < N, other=0))
    if CLAMP:
        used = used & (tl.load(values + n, mask=n < N, other=0.0) <= 0)
    at = (row // B) * SP + (row % B) * SB + t * ST
    tl.store(gradient + n, tl.load(g + at, mask=used, other=0.0), mask=n < N)
