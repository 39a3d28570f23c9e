"""The loops of `functional/sphere.py`: x, y, f and g are its symbols, rows are vectors."""

from math import sqrt
from typing import no_type_check

from lmzoo.functional.kernels.compiled import compiled


@compiled
@no_type_check
def onto(x, radius, most, y, f):
    """Fill y and f."""
    rows, width = x.shape
    for n in range(rows):
        given, out, total = x[n], y[n], x.dtype.type(0)
        for i in range(width):
            total += given[i] * given[i]
        length = sqrt(total)
        factor = x.dtype.type(most if length * most < radius else radius / length)
        f[n] = factor
        for i in range(width):
            out[i] = given[i] * factor


@compiled
@no_type_check
def reverse(g, y, f, radius, most, dx):
    """Fill dx."""
    rows, width = g.shape
    for n in range(rows):
        given, on_sphere, out, along = g[n], y[n], dx[n], g.dtype.type(0)
        for i in range(width):
            along += given[i] * on_sphere[i]
        factor = f[n]
        share = g.dtype.type(0 if factor == g.dtype.type(most) else along / (radius * radius))
        for i in range(width):
            out[i] = factor * (given[i] - share * on_sphere[i])
