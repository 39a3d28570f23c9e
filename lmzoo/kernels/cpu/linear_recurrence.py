"""The kernels of `functional/linear_recurrence.py`, in its symbols; all arrays are (N, T, H)."""

from typing import no_type_check

import numpy as np

from lmzoo.kernels.cpu.compiled import compiled


@compiled
@no_type_check
def forward(a, b, start, h):
    """Write h; start is (N, H)."""
    rows, steps, width = b.shape
    for n in range(rows):
        before = start[n]
        for t in range(steps):
            a_, b_, h_ = a[n, t], b[n, t], h[n, t]
            for i in range(width):
                h_[i] = a_[i] * before[i] + b_[i]
            before = h_


@compiled
@no_type_check
def backward(g, a, h, start, da, db, dstart):
    """Write the gradients of a, b and start."""
    rows, steps, width = g.shape
    for n in range(rows):
        carried = dstart[n]
        carried[:] = 0
        for t in range(steps - 1, -1, -1):
            a_, g_, da_, delta = a[n, t], g[n, t], da[n, t], db[n, t]
            before = h[n, t - 1] if t > 0 else start[n]
            for i in range(width):
                delta[i] = g_[i] + carried[i]
            for i in range(width):
                da_[i] = delta[i] * np.conj(before[i])
            for i in range(width):
                carried[i] = delta[i] * np.conj(a_[i])
