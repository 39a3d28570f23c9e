"""The kernels of `functional/normalise.py`, in its symbols x, y, f and g.

x and dx are (T, N, E), time first as a recurrence writes them; all others are (N, T, ...), as the
rest of a model reads them. For rows without a time axis T is 1.
"""

from math import sqrt

from lmzoo.kernels.cpu.compiled import compiled


@compiled
def forward(x, radius, max_factor, y, f):
    """Write y and f."""
    steps, rows, width = x.shape
    for n in range(rows):
        for t in range(steps):
            x_ = x[t, n]
            y_ = y[n, t]
            total = x.dtype.type(0)
            for i in range(width):
                total += x_[i] * x_[i]
            length = sqrt(total)
            factor = x.dtype.type(max_factor if length * max_factor < radius else radius / length)
            f[n, t] = factor
            for i in range(width):
                y_[i] = x_[i] * factor


@compiled
def backward(g, y, f, radius, max_factor, dx):
    """Write dx."""
    steps, rows, width = dx.shape
    number = g.dtype.type
    for n in range(rows):
        for t in range(steps):
            g_ = g[n, t]
            y_ = y[n, t]
            dx_ = dx[t, n]
            dot = number(0)
            for i in range(width):
                dot += g_[i] * y_[i]
            factor = f[n, t]
            scale = number(0 if factor == number(max_factor) else dot / (radius * radius))
            for i in range(width):
                dx_[i] = factor * (g_[i] - scale * y_[i])
