"""The kernels of `functional/selective_scan.py`, in its symbols.

x, Δ and y (P, B, T, D); A (P, N, D); b and c (P, B, T, N); states (P, B, N, D). One sequence is
computed at a time; the backward kernel computes its states again.
"""

import numpy as np

from lmzoo.kernels.cpu import elementwise
from lmzoo.kernels.cpu.compiled import compiled


@compiled
def forward(x, delta, rate, b, c, start, y, end):
    """Write the outputs and the last state."""
    members, rows, steps, width = x.shape
    u = np.empty(width, x.dtype)
    for p in range(members):
        rates = rate[p]
        for m in range(rows):
            s = end[p, m]
            s[:] = start[p, m]
            for t in range(steps):
                delta_t = delta[p, m, t]
                x_t = x[p, m, t]
                y_t = y[p, m, t]
                # Once for all states: none of them changes Δ ⊙ x.
                for d in range(width):
                    u[d] = delta_t[d] * x_t[d]
                    y_t[d] = 0
                for n in range(len(s)):
                    s_n = s[n]
                    rate_n = rates[n]
                    b_n = b[p, m, t, n]
                    c_n = c[p, m, t, n]
                    for d in range(width):
                        new = elementwise.exp(-rate_n[d] * delta_t[d]) * s_n[d] + b_n * u[d]
                        s_n[d] = new
                        y_t[d] += c_n * new


@compiled
def backward(g, g_end, x, delta, rate, b, c, start, dx, ddelta, drate, db, dc, dstart):
    """Write the gradients; add to that of A."""
    members, rows, steps, width = x.shape
    states = rate.shape[1]
    zero = x.dtype.type(0)
    s = np.empty((steps + 1, states, width), x.dtype)
    decays = np.empty((steps, states, width), x.dtype)
    u = np.empty(width, x.dtype)
    du = np.empty(width, x.dtype)
    for p in range(members):
        rates = rate[p]
        drates = drate[p]
        for m in range(rows):
            s[0] = start[p, m]
            for t in range(steps):
                delta_t = delta[p, m, t]
                x_t = x[p, m, t]
                for d in range(width):
                    u[d] = delta_t[d] * x_t[d]
                for n in range(states):
                    w_n = decays[t, n]
                    s_n = s[t + 1, n]
                    before = s[t, n]
                    rate_n = rates[n]
                    b_n = b[p, m, t, n]
                    for d in range(width):
                        w_n[d] = elementwise.exp(-rate_n[d] * delta_t[d])
                        s_n[d] = w_n[d] * before[d] + b_n * u[d]
            carried = dstart[p, m]
            carried[:] = g_end[p, m]
            for t in range(steps - 1, -1, -1):
                delta_t = delta[p, m, t]
                x_t = x[p, m, t]
                g_t = g[p, m, t]
                dx_t = dx[p, m, t]
                ddelta_t = ddelta[p, m, t]
                for d in range(width):
                    u[d] = delta_t[d] * x_t[d]
                    du[d] = 0
                    ddelta_t[d] = 0
                for n in range(states):
                    w_n = decays[t, n]
                    s_n = s[t + 1, n]
                    before = s[t, n]
                    rate_n = rates[n]
                    carried_n = carried[n]
                    drate_n = drates[n]
                    b_n = b[p, m, t, n]
                    c_n = c[p, m, t, n]
                    total_b = zero
                    total_c = zero
                    for d in range(width):
                        gradient = carried_n[d] + c_n * g_t[d]
                        total_b += gradient * u[d]
                        total_c += g_t[d] * s_n[d]
                        du[d] += gradient * b_n
                        carried_n[d] = gradient * w_n[d]
                        # ∂ e^(−AΔ) has the factor e^(−AΔ), which is in `carried_n` already.
                        dlog = carried_n[d] * before[d]
                        ddelta_t[d] -= dlog * rate_n[d]
                        drate_n[d] -= dlog * delta_t[d]
                    db[p, m, t, n] = total_b
                    dc[p, m, t, n] = total_c
                # x and Δ act on all states by their product, whose gradient is complete only now.
                for d in range(width):
                    dx_t[d] = du[d] * delta_t[d]
                    ddelta_t[d] += du[d] * x_t[d]
