"""The launch of a kernel of one step, and the functions that these kernels call."""

from collections.abc import Sequence
from typing import Any, no_type_check

import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import product, read_state

ROWS, COLUMNS, BLOCK, WARPS = 32, 32, 16, 8
"""Sequences and units of a program, columns of the left side that it multiplies at once, and its
warps, so many that registers are enough (`gpu/resources.py`)."""


def launch(kernel: Any, like: Tensor, *args: Any, flags: Sequence[Any], precision: str) -> None:
    """Launch a kernel of one step for states of the shape (P, B, T, H)."""
    members, rows, steps, width = like.shape
    grid = -(-rows // ROWS), -(-width // COLUMNS), members
    sizes = rows, steps, width, ROWS, COLUMNS, BLOCK
    kernel[grid](*args, *sizes, *flags, precision, num_warps=WARPS)


def step_before(start: Tensor, states: Tensor, t: int) -> tuple[Tensor, int]:
    """Return h_{t-1}, and the distance of the states of two sequences in memory."""
    before = start if t == 0 else states[:, :, t - 1]
    return before, before.stride(1)


@triton.jit
@no_type_check
def position(B, H, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the member, the sequences of all members (ROWS, 1) and whether they exist, the units
    (1, COLUMNS), and whether both exist.
    """
    p = tl.program_id(2).to(tl.int64)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    j = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    return p, p * B + row, row < B, j, (row < B) & (j < H)


@triton.jit
@no_type_check
def step_product(
    left, S, row, exists, weight, S_K, S_J, j, K, H, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr, READ: tl.constexpr = "raw",
):  # fmt: skip
    """Return columns j of left (rows, K) times a weight (K, H).

    Rows of the left side are S apart, rows and columns of the weight S_K and S_J. `READ` is what
    the product reads of the left side (`read_state`).
    """
    result = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, K, BLOCK):
        k = first + tl.arange(0, BLOCK)
        a = tl.load(left + row * S + k[None, :], mask=exists & (k[None, :] < K), other=0.0)
        if READ != "raw":
            a, _ = read_state(a, READ)
        k = k[:, None]
        w = tl.load(weight + k * S_K + j * S_J, mask=(k < K) & (j < H), other=0.0)
        result += product(a, w, PRECISION)
    return result
