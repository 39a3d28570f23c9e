"""The minimal gated unit's sweeps, `functional/scan/mgu.py` in its symbols, a member at a time.

Arrays are (T, P, B, H). What a step reads and writes stays in the cache from one loop or product
to the next. Weights without numbers are cut.
"""

from typing import no_type_check

import numpy as np

from lmzoo.kernels.cpu.blas import back, outer, product
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import sigmoid, tanh
from lmzoo.kernels.cpu.projection import project_gradients, project_inputs


@compiled
@no_type_check
def forward(gate, candidate, hf, hh, start, carry, states, f, c):
    """Fill states, f and c; False at a word that has no row."""
    steps, members, rows, width = f.shape
    kappa, q = f.dtype.type(carry), np.empty((rows, width), f.dtype)
    q_ = q.ravel()
    for p in range(members):
        for t in range(steps):
            if not (
                project_inputs(gate, t, p, f[t, p]) and project_inputs(candidate, t, p, c[t, p])
            ):
                return False
            h = states[t - 1, p] if t else start[p]
            h_, f_, c_, new = h.ravel(), f[t, p].ravel(), c[t, p].ravel(), states[t, p].ravel()
            if hf.size > 0:
                product(h, hf[p], f[t, p], 1)
            for i in range(len(new)):
                f_[i] = sigmoid(f_[i])
                q_[i] = h_[i] * f_[i]
            if hh.size > 0:
                product(q, hh[p], c[t, p], 1)
            for i in range(len(new)):
                c_[i] = tanh(c_[i])
                new[i] = kappa * (h_[i] - q_[i]) + f_[i] * c_[i]
    return True


@compiled
@no_type_check
def reverse(upstream, gate, candidate, hf, hh, start, carry, states, f, c, of_hf, of_hh, delta):
    """Fill delta (P, B, H), the gradient of the start, and add to the others."""
    steps, members, rows, width = f.shape
    one, kappa = f.dtype.type(1), f.dtype.type(carry)
    room = np.zeros((5, rows, width), f.dtype)
    df, dc, q, s = room[0], room[1], room[2], room[3]
    df_, dc_, q_, s_, u = df.ravel(), dc.ravel(), q.ravel(), s.ravel(), room[4].ravel()
    delta[:] = 0
    for p in range(members):
        d = delta[p].ravel()
        for t in range(steps - 1, -1, -1):
            h = states[t - 1, p] if t else start[p]
            g, h_, f_, c_ = upstream[t, p].ravel(), h.ravel(), f[t, p].ravel(), c[t, p].ravel()
            for i in range(len(d)):
                d[i] += g[i]
                dc_[i] = d[i] * f_[i] * (one - c_[i] * c_[i])
                u[i] = d[i] * (c_[i] - kappa * h_[i])
            if hh.size > 0:
                back(dc, hh[p], s, 0)  # without h ⊙ f it stays zero
            for i in range(len(d)):
                df_[i] = (u[i] + s_[i] * h_[i]) * f_[i] * (one - f_[i])
                d[i] = kappa * (one - f_[i]) * d[i] + f_[i] * s_[i]
                q_[i] = h_[i] * f_[i]
            if hf.size > 0:
                back(df, hf[p], delta[p], 1)
                outer(h, df, of_hf[p])
            if hh.size > 0:
                outer(q, dc, of_hh[p])
            project_gradients(gate, t, p, df)
            project_gradients(candidate, t, p, dc)
