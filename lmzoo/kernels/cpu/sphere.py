"""The loops of `functional/sphere.py`: x, y, f and g are its symbols.

What a recurrence gave lies time first and becomes, with all of a sequence's steps side by side,
what the rest of a model reads: x and dx are (T, N, E), all others (N, T, ...). Of rows in one
order T is 1.
"""

from math import sqrt
from typing import no_type_check

from lmzoo.kernels.cpu.compiled import compiled


@compiled
@no_type_check
def onto(x, radius, most, y, f):
    """Fill y and f."""
    steps, rows, width = x.shape
    for n in range(rows):
        for t in range(steps):
            given, out, total = x[t, n], y[n, t], x.dtype.type(0)
            for i in range(width):
                total += given[i] * given[i]
            length = sqrt(total)
            factor = x.dtype.type(most if length * most < radius else radius / length)
            f[n, t] = factor
            for i in range(width):
                out[i] = given[i] * factor


@compiled
@no_type_check
def reverse(g, y, f, radius, most, dx):
    """Fill dx."""
    steps, rows, width = dx.shape
    for n in range(rows):
        for t in range(steps):
            given, on_sphere, out, along = g[n, t], y[n, t], dx[t, n], g.dtype.type(0)
            for i in range(width):
                along += given[i] * on_sphere[i]
            factor = f[n, t]
            share = g.dtype.type(0 if factor == g.dtype.type(most) else along / (radius * radius))
            for i in range(width):
                out[i] = factor * (given[i] - share * on_sphere[i])
