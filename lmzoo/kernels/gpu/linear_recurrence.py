"""The kernels of `functional/linear_recurrence.py`, in its symbols; arrays are (N, T, H).

A program computes BLOCK columns of one row for all steps. A complex number is two float32 numbers,
real part first, as torch stores it.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import load, numbers, program_int64
from lmzoo.kernels.gpu.launch import launch

BLOCK = 64


def forward(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """Return h (N, T, H) from contiguous a and b (N, T, H) and start (N, H)."""
    h = torch.empty_like(b)
    _launch(_forward, [a, b, start, h])
    return h


def backward(
    g: Tensor,
    a: Tensor,
    h: Tensor,
    start: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of a, b and start; all arguments are contiguous."""
    da = torch.empty_like(a)
    db = torch.empty_like(a)
    dstart = torch.empty_like(start)
    _launch(_backward, [g, a, h, start, da, db, dstart])
    return da, db, dstart


def _launch(kernel: Any, tensors: list[Tensor]):
    """Launch a kernel for tensors of one dtype, of which the first is (N, T, H)."""
    first = tensors[0]
    rows, steps, width = first.shape
    # The recurrence is elementwise: no column needs another one.
    columns = -(-width // BLOCK)
    grid = (rows, columns)
    # A kernel sees pairs of real numbers.
    is_complex = first.is_complex()
    if is_complex:
        tensors = [torch.view_as_real(tensor) for tensor in tensors]
    sizes = [steps, width, is_complex, BLOCK]
    launch(kernel, grid, tensors + sizes)


@triton.jit
def _forward(a, b, start, h, T, H, COMPLEX: tl.constexpr, BLOCK: tl.constexpr):
    n = program_int64(0)
    i = numbers(1, BLOCK)
    ok = i < H
    # A complex number takes two places: its real part, then the imaginary one.
    first = (1 + COMPLEX) * (n * H + i)
    re = load(start + first, ok)
    im = load(start + first + 1, ok & COMPLEX)
    for t in range(T):
        at = (1 + COMPLEX) * ((n * T + t) * H + i)
        a_re = load(a + at, ok)
        b_re = load(b + at, ok)
        new = a_re * re + b_re
        if COMPLEX:
            a_im = load(a + at + 1, ok)
            new -= a_im * im
            b_im = load(b + at + 1, ok)
            im = a_re * im + a_im * re + b_im
            tl.store(h + at + 1, im, ok)
        re = new
        tl.store(h + at, re, ok)


@triton.jit
def _backward(
    g,
    a,
    h,
    start,
    da,
    db,
    dstart,
    T,
    H,
    COMPLEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    n = program_int64(0)
    i = numbers(1, BLOCK)
    ok = i < H
    first = (1 + COMPLEX) * (n * H + i)
    carried_re = tl.zeros((BLOCK,), tl.float32)
    carried_im = tl.zeros((BLOCK,), tl.float32)
    for back in range(T):
        t = T - 1 - back
        at = (1 + COMPLEX) * ((n * T + t) * H + i)
        # Before the first step is the start: nothing is read from h, where 0 is any valid place.
        before = tl.where(t > 0, at - (1 + COMPLEX) * H, 0)
        d_re = load(g + at, ok) + carried_re
        later = ok & (t > 0)
        begins = ok & (t == 0)
        h_re = load(h + before, later)
        h_re += load(start + first, begins)
        a_re = load(a + at, ok)
        # δ times the conjugates of h_{t-1} and a_t
        da_re = d_re * h_re
        carried_re = d_re * a_re
        if COMPLEX:
            d_im = load(g + at + 1, ok) + carried_im
            h_im = load(h + before + 1, later)
            h_im += load(start + first + 1, begins)
            a_im = load(a + at + 1, ok)
            da_re = da_re + d_im * h_im
            carried_re = carried_re + d_im * a_im
            carried_im = d_im * a_re - d_re * a_im
            da_im = d_im * h_re - d_re * h_im
            tl.store(da + at + 1, da_im, ok)
            tl.store(db + at + 1, d_im, ok)
        tl.store(da + at, da_re, ok)
        tl.store(db + at, d_re, ok)
    tl.store(dstart + first, carried_re, ok)
    tl.store(dstart + first + 1, carried_im, ok & COMPLEX)
