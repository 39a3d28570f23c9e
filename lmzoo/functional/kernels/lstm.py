"""The loop of `functional/scan/lstm_back.py`, in its symbols: rows are sequences."""

from typing import no_type_check

from lmzoo.functional.kernels.compiled import compiled


@compiled
@no_type_check
def step(delta, gates, c, q, gated, coupled, gamma, da):
    """Fill da; put ∂L/∂c of the step before in γ's place."""
    rows, width = delta.shape
    one = delta.dtype.type(1)
    less = delta.dtype.type(coupled)
    at_g = 2 * width if gated else width
    for n in range(rows):
        d, y, of_c, squash = delta[n], gamma[n], c[n], q[n]
        i, f, g, o = gates[n, :width], gates[n, width:], gates[n, at_g:], gates[n, at_g + width :]
        di, df, dg, do = da[n, :width], da[n, width:], da[n, at_g:], da[n, at_g + width :]
        for k in range(width):
            do[k] = d[k] * squash[k] * o[k] * (one - o[k])
            y[k] += d[k] * o[k] * (one - squash[k] * squash[k])
        for k in range(width):
            dg[k] = y[k] * i[k] * (one - g[k] * g[k])
            di[k] = y[k] * (g[k] - less * of_c[k]) * i[k] * (one - i[k])
        if gated:
            for k in range(width):
                df[k] = y[k] * of_c[k] * f[k] * (one - f[k])
                y[k] *= f[k]
        elif coupled:
            for k in range(width):
                y[k] *= one - i[k]
