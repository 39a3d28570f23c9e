"""The minimal gated recurrent unit's sweeps, `functional/scan/mgru.py` in its symbols.

A member at a time; arrays are (T, P, B, H). What a step reads and writes stays in the cache from
one loop or product to the next. Weights without numbers are cut.
"""

from typing import NamedTuple, no_type_check

import numpy as np

from lmzoo.kernels.cpu.blas import back, outer, product
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import atanh, sigmoid, tanh
from lmzoo.kernels.cpu.projection import project_gradients, project_inputs


class Variant(NamedTuple):
    """What is cut and what is chosen."""

    carry: bool
    """κ."""
    write: bool
    """ω."""
    away: int
    """λ."""
    logistic: bool
    """Whether act is σ; tanh otherwise."""
    centred: bool
    """Whether h − ½ is read."""
    logit: bool
    """Whether the atanh is; h itself if neither."""
    limit: float


@compiled
@no_type_check
def forward(candidate, hf, start, variant, states, f, g):
    """Fill states, f and g; False at a word that has no row."""
    steps, members, rows, width = f.shape
    kappa, omega = f.dtype.type(variant.carry), f.dtype.type(variant.write)
    lam, q = f.dtype.type(variant.away), np.empty((rows, width), f.dtype)
    if not hf.size:
        f[:] = 0.5
    for p in range(members):
        for t in range(steps):
            if not project_inputs(candidate, t, p, g[t, p]):
                return False
            h = states[t - 1, p] if t else start[p]
            h_, f_, g_, new = h.ravel(), f[t, p].ravel(), g[t, p].ravel(), states[t, p].ravel()
            if hf.size > 0:
                product(read(h, variant, q), hf[p], f[t, p], 0)
                for i in range(len(new)):
                    f_[i] = sigmoid(f_[i])
            for i in range(len(new)):
                g_[i] = sigmoid(g_[i]) if variant.logistic else tanh(g_[i])
                new[i] = kappa * h_[i] + f_[i] * (omega * g_[i] - lam * h_[i])
    return True


@compiled
@no_type_check
def reverse(upstream, candidate, hf, start, variant, states, f, g, of_hf, delta):
    """Fill delta (P, B, H), the gradient of the start, and add to the others."""
    steps, members, rows, width = f.shape
    kappa, omega = f.dtype.type(variant.carry), f.dtype.type(variant.write)
    lam, one = f.dtype.type(variant.away), f.dtype.type(1)
    room = np.empty((4, rows, width), f.dtype)
    df, dg, q, s = room[0], room[1], room[2], room[3]
    df_, dg_, s_ = df.ravel(), dg.ravel(), s.ravel()
    delta[:] = 0
    for p in range(members):
        d = delta[p].ravel()
        for t in range(steps - 1, -1, -1):
            h = states[t - 1, p] if t else start[p]
            u, h_, f_, g_ = upstream[t, p].ravel(), h.ravel(), f[t, p].ravel(), g[t, p].ravel()
            for i in range(len(d)):
                d[i] += u[i]
                slope = (g_[i] if variant.logistic else one) - g_[i] * g_[i]
                dg_[i] = omega * d[i] * f_[i] * slope
                df_[i] = d[i] * (omega * g_[i] - lam * h_[i]) * f_[i] * (one - f_[i])
                d[i] *= kappa - lam * f_[i]
            if hf.size > 0:
                outer(read(h, variant, q), df, of_hf[p])
                if variant.logit:
                    back(df, hf[p], s, 0)
                    through(s_, h_, variant, d)
                else:
                    back(df, hf[p], delta[p], 1)
            project_gradients(candidate, t, p, dg)


@compiled
@no_type_check
def read(h, variant, q):
    """What of h is read, if need be in q's room."""
    one, half, limit = h.dtype.type(1), h.dtype.type(0.5), h.dtype.type(variant.limit)
    h_, q_ = h.ravel(), q.ravel()
    if variant.centred:
        for i in range(len(q_)):
            q_[i] = h_[i] - half
    elif variant.logit:
        for i in range(len(q_)):
            q_[i] = atanh(min(max(h_[i] + h_[i] - one, -limit), limit))
    else:
        return h
    return q


@compiled
@no_type_check
def through(s, h, variant, d):
    """Add read'(h) ⊙ s to d, of the atanh."""
    zero, one, two = d.dtype.type(0), d.dtype.type(1), d.dtype.type(2)
    limit = d.dtype.type(variant.limit)
    for i in range(len(d)):
        u = h[i] + h[i] - one
        d[i] += zero if abs(u) > limit else s[i] * two / (one - u * u)
