"""The kernels of `functional/linear_recurrence.py`, in its symbols; all arrays are (N, T, H)."""

import numpy as np

from lmzoo.kernels.cpu.compiled import compiled


@compiled
def forward(a, b, start, h):
    """Write h; start is (N, H)."""
    rows, steps, width = b.shape
    for n in range(rows):
        before = start[n]
        for t in range(steps):
            a_ = a[n, t]
            b_ = b[n, t]
            h_ = h[n, t]
            for i in range(width):
                h_[i] = a_[i] * before[i] + b_[i]
            before = h_


@compiled
def backward(g, a, h, start, da, db, dstart):
    """Write the gradients of a, b and start."""
    rows, steps, width = g.shape
    for n in range(rows):
        carried = dstart[n]
        carried[:] = 0
        for t in range(steps - 1, -1, -1):
            a_ = a[n, t]
            g_ = g[n, t]
            da_ = da[n, t]
            delta = db[n, t]
            if t > 0:
                before = h[n, t - 1]
            else:
                before = start[n]
            for i in range(width):
                delta[i] = g_[i] + carried[i]
            for i in range(width):
                da_[i] = delta[i] * np.conj(before[i])
            # The gradient of a product with a complex number has its conjugate.
            for i in range(width):
                carried[i] = delta[i] * np.conj(a_[i])
