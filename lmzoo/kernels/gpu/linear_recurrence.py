"""The kernels of `functional/linear_recurrence.py`, in its symbols; arrays are (N, T, H).

A program computes BLOCK columns of one row for all steps. A complex number is two float32 numbers,
real part first, as torch stores it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.launch import launch

BLOCK = 64


def forward(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """Return h (N, T, H) from contiguous a and b (N, T, H) and start (N, H)."""
    h = torch.empty_like(b)
    grid, sizes = _program(b)
    launch(_forward, grid, *_real(a, b, start, h), *sizes, b.is_complex(), BLOCK)
    return h


def backward(g: Tensor, a: Tensor, h: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of a, b and start; all arguments are contiguous."""
    da = torch.empty_like(a)
    db = torch.empty_like(a)
    dstart = torch.empty_like(start)
    grid, sizes = _program(g)
    tensors = _real(g, a, h, start, da, db, dstart)
    launch(_backward, grid, *tensors, *sizes, g.is_complex(), BLOCK)
    return da, db, dstart


def _program(like: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
    rows, steps, width = like.shape
    return (rows, -(-width // BLOCK)), (steps, width)


def _real(*tensors: Tensor) -> list[Tensor]:
    found = []
    for tensor in tensors:
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        found.append(tensor)
    return found


@triton.jit
def _forward(a, b, start, h, T, H, COMPLEX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = i < H
    first = (1 + COMPLEX) * (n * H + i)
    re = tl.load(start + first, mask=ok, other=0.0)
    im = tl.load(start + first + 1, mask=ok & COMPLEX, other=0.0)
    for t in range(T):
        at = (1 + COMPLEX) * ((n * T + t) * H + i)
        a_re = tl.load(a + at, mask=ok, other=0.0)
        new = a_re * re + tl.load(b + at, mask=ok, other=0.0)
        if COMPLEX:
            a_im = tl.load(a + at + 1, mask=ok, other=0.0)
            new -= a_im * im
            im = a_re * im + a_im * re + tl.load(b + at + 1, mask=ok, other=0.0)
            tl.store(h + at + 1, im, mask=ok)
        re = new
        tl.store(h + at, re, mask=ok)


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
    n = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = i < H
    first = (1 + COMPLEX) * (n * H + i)
    carried_re = tl.zeros((BLOCK,), tl.float32)
    carried_im = tl.zeros((BLOCK,), tl.float32)
    for back in range(T):
        t = T - 1 - back
        at = (1 + COMPLEX) * ((n * T + t) * H + i)
        # Before the first step is the start: nothing is read from h, where 0 is any valid place.
        before = tl.where(t > 0, at - (1 + COMPLEX) * H, 0)
        d_re = tl.load(g + at, mask=ok, other=0.0) + carried_re
        h_re = tl.load(h + before, mask=ok & (t > 0), other=0.0)
        h_re += tl.load(start + first, mask=ok & (t == 0), other=0.0)
        a_re = tl.load(a + at, mask=ok, other=0.0)
        # δ times the conjugates of h_{t-1} and a_t
        da_re = d_re * h_re
        carried_re = d_re * a_re
        if COMPLEX:
            d_im = tl.load(g + at + 1, mask=ok, other=0.0) + carried_im
            h_im = tl.load(h + before + 1, mask=ok & (t > 0), other=0.0)
            h_im += tl.load(start + first + 1, mask=ok & (t == 0), other=0.0)
            a_im = tl.load(a + at + 1, mask=ok, other=0.0)
            da_re = da_re + d_im * h_im
            carried_re = carried_re + d_im * a_im
            carried_im = d_im * a_re - d_re * a_im
            tl.store(da + at + 1, d_im * h_re - d_re * h_im, mask=ok)
            tl.store(db + at + 1, d_im, mask=ok)
        tl.store(da + at, da_re, mask=ok)
        tl.store(db + at, d_re, mask=ok)
    tl.store(dstart + first, carried_re, mask=ok)
    tl.store(dstart + first + 1, carried_im, mask=ok & COMPLEX)
