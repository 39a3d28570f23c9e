"""Long short-term memory's sweeps, `functional/scan/lstm.py` in its symbols, a member at a time.

Arrays are (T, P, B, H), of gates (T, P, B, G). What a step reads and writes stays in the cache
from one loop or product to the next. Columns of f are there or not: g's begin at G − 2 H.
q is made again by the reverse sweep: to write and to read it takes longer.

What reads what a loop wrote passes over all rows anew: one after another within each row, some
loops are left without vectors by the compiler, and a step takes twice as long.
"""

from typing import no_type_check

import numpy as np

from lmzoo.kernels.cpu.blas import back, outer, product
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import sigmoid, tanh
from lmzoo.kernels.cpu.projection import project_gradients, project_inputs


@compiled
@no_type_check
def forward(read, hidden, start, first, coupled, states, gates, memory):
    """Fill states, gates and each c'; False at a word that has no row."""
    steps, members = states.shape[:2]
    for p in range(members):
        for t in range(steps):
            if not project_inputs(read, t, p, gates[t, p]):
                return False
            product(states[t - 1, p] if t else start[p], hidden[p], gates[t, p], 1)
            before = memory[t - 1, p] if t else first[p]
            _step(gates[t, p], before, coupled, memory[t, p], states[t, p])
    return True


@compiled
@no_type_check
def reverse(
    upstream, read, hidden, start, first, coupled, states, gates, memory, of_hidden, delta, gamma
):
    """Fill delta and gamma (P, B, H), the gradients of the start, and add to the others."""
    steps, members = states.shape[:2]
    da = np.empty(gates.shape[2:], gates.dtype)
    delta[:] = 0
    gamma[:] = 0
    for p in range(members):
        for t in range(steps - 1, -1, -1):
            before, given = memory[t - 1, p] if t else first[p], upstream[t, p]
            _back(given, gates[t, p], before, memory[t, p], coupled, delta[p], gamma[p], da)
            back(da, hidden[p], delta[p], 0)
            outer(states[t - 1, p] if t else start[p], da, of_hidden[p])
            project_gradients(read, t, p, da)


@compiled
@no_type_check
def _step(gates, before, coupled, memory, states):
    """From what is read to the gates, c' and h'."""
    rows, width = before.shape
    less, at_g = gates.dtype.type(coupled), gates.shape[1] - 2 * width
    for n in range(rows):
        i_and_f, g, o = gates[n, :at_g], gates[n, at_g:], gates[n, at_g + width :]
        for k in range(at_g):
            i_and_f[k] = sigmoid(i_and_f[k])
        for k in range(width):
            g[k] = tanh(g[k])
            o[k] = sigmoid(o[k])
    for n in range(rows):
        i, f, g, c, new = gates[n], gates[n, width:], gates[n, at_g:], before[n], memory[n]
        if at_g > width:
            for k in range(width):
                new[k] = f[k] * c[k] + i[k] * g[k]
        else:
            for k in range(width):
                new[k] = c[k] + i[k] * (g[k] - less * c[k])
    for n in range(rows):
        o, new, h = gates[n, at_g + width :], memory[n], states[n]
        for k in range(width):
            h[k] = o[k] * tanh(new[k])


@compiled
@no_type_check
def _back(upstream, gates, before, memory, coupled, delta, gamma, da):
    """Fill da; put ∂L/∂c in γ's place."""
    rows, width = before.shape
    one, less = gates.dtype.type(1), gates.dtype.type(coupled)
    at_g = gates.shape[1] - 2 * width
    for n in range(rows):
        d, u, y, new = delta[n], upstream[n], gamma[n], memory[n]
        o, do = gates[n, at_g + width :], da[n, at_g + width :]
        for k in range(width):
            through, q = (d[k] + u[k]) * o[k], tanh(new[k])
            do[k] = through * q * (one - o[k])
            y[k] += through * (one - q * q)
    for n in range(rows):
        y, c, i, di, g, dg = gamma[n], before[n], gates[n], da[n], gates[n, at_g:], da[n, at_g:]
        for k in range(width):
            dg[k] = y[k] * i[k] * (one - g[k] * g[k])
            di[k] = y[k] * (g[k] - less * c[k]) * i[k] * (one - i[k])
    if at_g > width:
        for n in range(rows):
            y, c, f, df = gamma[n], before[n], gates[n, width:], da[n, width:]
            for k in range(width):
                df[k] = y[k] * c[k] * f[k] * (one - f[k])
                y[k] *= f[k]
    elif coupled:
        for n in range(rows):
            y, i = gamma[n], gates[n]
            for k in range(width):
                y[k] *= one - i[k]
