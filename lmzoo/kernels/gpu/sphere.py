"""The kernels of `functional/normalise.py`, in its symbols; one launch forward and one backward.

A program computes a block of vectors. x may be one parameter of all members, whose rows are
contiguous within a member only.
"""

import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import load, program_int64
from lmzoo.kernels.gpu.launch import launch

NUMBERS = 2048
"""Numbers of a program: as many vectors as fit, one at least."""


def forward(
    x: Tensor,
    radius: float,
    shortest: float,
    floor: float,
) -> tuple[Tensor, Tensor]:
    """Return y, of the shape of x, and f of every vector."""
    y = x.new_empty(x.shape)
    f = x.new_empty(x.shape[:-1])
    member = x
    # One parameter of all members is read in place: its own rows are contiguous.
    if x.dim() == 1 or not x[0].is_contiguous():
        member = x.contiguous()
    rows = 1
    stride = 0
    if x.dim() > 1:
        # Behind the vectors of a member, those of the next one may be somewhere else.
        rows = x[0].numel() // x.shape[-1]
        stride = member.stride(0)
    grid, sizes = _program(y)
    tensors = (member, y, f)
    arguments = tensors + (rows, stride) + sizes
    launch(_forward, grid, arguments + (radius, shortest, floor))
    return y, f


def backward(
    g: Tensor,
    y: Tensor,
    f: Tensor,
    radius: float,
    shortest: float,
) -> Tensor:
    """Return ∂L/∂x."""
    dx = g.new_empty(g.shape)
    grid, sizes = _program(y)
    tensors = (g.contiguous(), y.contiguous(), f.contiguous(), dx)
    launch(_backward, grid, tensors + sizes + (radius, shortest))
    return dx


def _program(y: Tensor) -> tuple[tuple[int], tuple[int, int, int, int]]:
    width = y.shape[-1]
    count = y.numel() // width
    # A range in Triton is a power of two.
    columns = 1 << (width - 1).bit_length()
    block = max(1, NUMBERS // columns)
    programs = -(-count // block)
    return (programs,), (count, width, columns, block)


@triton.jit
def _forward(
    x,
    y,
    f,
    R,
    S,
    N,
    E,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    RADIUS: tl.constexpr,
    SHORTEST: tl.constexpr,
    FLOOR: tl.constexpr,
):
    n = program_int64(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, COLUMNS)[None, :]
    ok = (n[:, None] < N) & (i < E)
    at = (n // R) * S + (n % R) * E
    vectors = load(x + at[:, None] + i, ok)
    # Relative to the largest number, so that squares neither overflow nor vanish.
    largest = tl.max(tl.abs(vectors), 1)
    unit = tl.where(largest > 0, largest, 1.0)
    relative = vectors / unit[:, None]
    square = tl.sum(relative * relative, 1)
    length = unit * tl.sqrt(square)
    if FLOOR > 0:
        # ε is added to the sum of squares, as the formulas of `rms_norm` and `unit` do.
        square = tl.sum(vectors * vectors, 1)
        length = tl.sqrt(square + FLOOR)
    divisor = tl.where(length < SHORTEST, SHORTEST, length)
    factor = tl.where(length < SHORTEST, RADIUS / SHORTEST, RADIUS / divisor)
    scaled = vectors * factor[:, None]
    tl.store(y + n[:, None] * E + i, scaled, ok)
    tl.store(f + n, factor, n < N)


@triton.jit
def _backward(
    g,
    y,
    f,
    dx,
    N,
    E,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    RADIUS: tl.constexpr,
    SHORTEST: tl.constexpr,
):
    n = program_int64(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, COLUMNS)[None, :]
    ok = (n[:, None] < N) & (i < E)
    at = n[:, None] * E + i
    upstream = load(g + at, ok)
    projected = load(y + at, ok)
    factor = load(f + n, n < N)
    dot = tl.sum(upstream * projected, 1) / (RADIUS * RADIUS)
    # A shorter vector has a constant factor.
    dot = tl.where(factor < RADIUS / SHORTEST, dot, 0.0)
    tangent = upstream - projected * dot[:, None]
    tl.store(dx + at, factor[:, None] * tangent, ok)
