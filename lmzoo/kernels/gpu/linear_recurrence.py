"""The kernels of `functional/linear_recurrence.py`, in its symbols; arrays are (N, T, H).

A program computes BLOCK columns of one row for all steps. A complex number is two float32 numbers,
real part first, as torch stores it.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

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


def _launch(kernel: Any, tensors: list[Tensor]) -> None:
    """Launch a kernel for tensors of one dtype, of which the first is (N, T, H)."""
    first = tensors[0]
    rows, steps, width = first.shape
    # The recurrence is elementwise: no column needs another one.
    grid = (rows, -(-width // BLOCK))
    # A kernel sees pairs of real numbers.
    is_complex = first.is_complex()
    if is_complex:
        tensors = [torch.view_as_real(tensor) for tensor in tensors]
    launch(kernel, grid, tensors + [steps, width, is_complex, BLOCK])


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
