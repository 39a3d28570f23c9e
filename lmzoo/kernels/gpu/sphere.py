"""The kernels of `functional/normalise.py`, in its symbols; one launch forward and one backward.

A program computes a block of vectors. x may be one parameter of all members, whose rows are
contiguous within a member only.
"""

import triton
import triton.language as tl
from torch import Tensor

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
    launch(_forward, grid, tensors + (rows, stride) + sizes + (radius, shortest, floor))
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
    return (-(-count // block),), (count, width, columns, block)


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
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, COLUMNS)[None, :]
    ok = (n[:, None] < N) & (i < E)
    at = (n // R) * S + (n % R) * E
    vectors = tl.load(x + at[:, None] + i, mask=ok, other=0.0)
    # Relative to the largest number, so that squares neither overflow nor vanish.
    largest = tl.max(tl.abs(vectors), axis=1)
    unit = tl.where(largest > 0, largest, 1.0)
    relative = vectors / unit[:, None]
    length = unit * tl.sqrt(tl.sum(relative * relative, axis=1))
    if FLOOR > 0:
        length = tl.sqrt(tl.sum(vectors * vectors, axis=1) + FLOOR)
    divisor = tl.where(length < SHORTEST, SHORTEST, length)
    factor = tl.where(length < SHORTEST, RADIUS / SHORTEST, RADIUS / divisor)
    tl.store(y + n[:, None] * E + i, vectors * factor[:, None], mask=ok)
    tl.store(f + n, factor, mask=n < N)


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
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, COLUMNS)[None, :]
    ok = (n[:, None] < N) & (i < E)
    at = n[:, None] * E + i
    upstream = tl.load(g + at, mask=ok, other=0.0)
    projected = tl.load(y + at, mask=ok, other=0.0)
    factor = tl.load(f + n, mask=n < N, other=0.0)
    dot = tl.sum(upstream * projected, axis=1) / (RADIUS * RADIUS)
    # A shorter vector has a constant factor.
    dot = tl.where(factor < RADIUS / SHORTEST, dot, 0.0)
    tl.store(
        dx + at,
        factor[:, None] * (upstream - projected * dot[:, None]),
        mask=ok,
    )
