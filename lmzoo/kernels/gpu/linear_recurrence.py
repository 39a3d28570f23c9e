"""The kernels of `functional/linear_recurrence.py`, in its symbols; arrays are (N, T, H).

A program computes BLOCK columns of one row for all steps. A complex number is two float32 numbers,
real part first, as torch stores it.
"""

from typing import no_type_check

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
    da, db, dstart = torch.empty_like(a), torch.empty_like(a), torch.empty_like(start)
    grid, sizes = _program(g)
    tensors = _real(g, a, h, start, da, db, dstart)
    launch(_backward, grid, *tensors, *sizes, g.is_complex(), BLOCK)
    return da, db, dstart


def _program(like: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
    rows, steps, width = like.shape
    return (rows, -(-width // BLOCK)), (steps, width)


def _real(*tensors: Tensor) -> list[Tensor]:
    return [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in tensors]


@triton.jit
@no_type_check
def _forward(a, b, start, h, T, H, COMPLEX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = i < H
    if COMPLEX:
        re = tl.load(start + 2 * (n * H + i), mask=ok, other=0.0)
        im = tl.load(start + 2 * (n * H + i) + 1, mask=ok, other=0.0)
        for t in range(T):
            at = 2 * ((n * T + t) * H + i)
            a_re = tl.load(a + at, mask=ok, other=0.0)
            a_im = tl.load(a + at + 1, mask=ok, other=0.0)
            new = a_re * re - a_im * im + tl.load(b + at, mask=ok, other=0.0)
            im = a_re * im + a_im * re + tl.load(b + at + 1, mask=ok, other=0.0)
            re = new
            tl.store(h + at, re, mask=ok)
            tl.store(h + at + 1, im, mask=ok)
    else:
        state = tl.load(start + n * H + i, mask=ok, other=0.0)
        for t in range(T):
            at = (n * T + t) * H + i
            state = tl.load(a + at, mask=ok, other=0.0) * state
            state += tl.load(b + at, mask=ok, other=0.0)
            tl.store(h + at, state, mask=ok)


@triton.jit
@no_type_check
def _backward(
    g, a, h, start, da, db, dstart, T, H, COMPLEX: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = i < H
    if COMPLEX:
        carried_re = tl.zeros((BLOCK,), tl.float32)
        carried_im = tl.zeros((BLOCK,), tl.float32)
        for back in range(T):
            t = T - 1 - back
            at = 2 * ((n * T + t) * H + i)
            d_re = tl.load(g + at, mask=ok, other=0.0) + carried_re
            d_im = tl.load(g + at + 1, mask=ok, other=0.0) + carried_im
            before = tl.where(t > 0, at - 2 * H, 0)
            first = 2 * (n * H + i)
            h_re = tl.load(h + before, mask=ok & (t > 0), other=0.0)
            h_im = tl.load(h + before + 1, mask=ok & (t > 0), other=0.0)
            h_re += tl.load(start + first, mask=ok & (t == 0), other=0.0)
            h_im += tl.load(start + first + 1, mask=ok & (t == 0), other=0.0)
            tl.store(db + at, d_re, mask=ok)
            tl.store(db + at + 1, d_im, mask=ok)
            # δ times the conjugates of h_{t-1} and a_t
            tl.store(da + at, d_re * h_re + d_im * h_im, mask=ok)
            tl.store(da + at + 1, d_im * h_re - d_re * h_im, mask=ok)
            a_re = tl.load(a + at, mask=ok, other=0.0)
            a_im = tl.load(a + at + 1, mask=ok, other=0.0)
            carried_re = d_re * a_re + d_im * a_im
            carried_im = d_im * a_re - d_re * a_im
        tl.store(dstart + 2 * (n * H + i), carried_re, mask=ok)
        tl.store(dstart + 2 * (n * H + i) + 1, carried_im, mask=ok)
    else:
        carried = tl.zeros((BLOCK,), tl.float32)
        for back in range(T):
            t = T - 1 - back
            at = (n * T + t) * H + i
            delta = tl.load(g + at, mask=ok, other=0.0) + carried
            before = tl.where(t > 0, at - H, 0)
            h_before = tl.load(h + before, mask=ok & (t > 0), other=0.0)
            h_before += tl.load(start + n * H + i, mask=ok & (t == 0), other=0.0)
            tl.store(db + at, delta, mask=ok)
            tl.store(da + at, delta * h_before, mask=ok)
            carried = delta * tl.load(a + at, mask=ok, other=0.0)
        tl.store(dstart + n * H + i, carried, mask=ok)
