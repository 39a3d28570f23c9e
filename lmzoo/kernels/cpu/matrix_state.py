"""The kernels of `functional/matrix_state.py`, in its symbols.

q, k, p, r (B, T, n, K); v, o (B, T, n, V); log w (B, T, n, D), D = K or 1; states (B, n, K, V).
p and r have no elements in a cell without a delta rule. A kernel computes one sequence and head
at a time; the backward kernel computes its states again.
"""

import numpy as np

from lmzoo.kernels.cpu import elementwise
from lmzoo.kernels.cpu.compiled import compiled


@compiled
def forward(q, k, v, log_w, start, p, r, o, end):
    """Write the outputs and the last state."""
    rows, steps, heads, keys = q.shape
    w = np.empty(keys, q.dtype)
    u = np.empty(v.shape[3], q.dtype)
    for b in range(rows):
        for h in range(heads):
            s = end[b, h]
            s[:] = start[b, h]
            for t in range(steps):
                _decay(log_w[b, t, h], w)
                if p.size:
                    erased = (p[b, t, h], r[b, t, h])
                else:
                    erased = (w[:0], w[:0])
                _step(k[b, t, h], v[b, t, h], w, erased[0], erased[1], u, s, s)
                _read(q[b, t, h], s, o[b, t, h])


@compiled
def backward(g, g_end, q, k, v, log_w, start, p, r, dq, dk, dv, dlog_w, dstart, dp, dr):
    """Write the gradients of all inputs from those of o and of the last state."""
    rows, steps, heads, keys = q.shape
    values = v.shape[3]
    # Those of one sequence and head, computed again: forward stores none.
    states = np.empty((steps + 1, keys, values), q.dtype)
    ws = np.empty((steps, keys), q.dtype)
    us = np.empty((steps, values), q.dtype)
    dw = np.empty(keys, q.dtype)
    du = np.empty(values, q.dtype)
    none = dw[:0]
    for b in range(rows):
        for h in range(heads):
            states[0] = start[b, h]
            for t in range(steps):
                _decay(log_w[b, t, h], ws[t])
                erased = (none, none)
                if p.size:
                    erased = (p[b, t, h], r[b, t, h])
                _step(
                    k[b, t, h],
                    v[b, t, h],
                    ws[t],
                    erased[0],
                    erased[1],
                    us[t],
                    states[t],
                    states[t + 1],
                )
            carried = dstart[b, h]
            carried[:] = g_end[b, h]
            for t in range(steps - 1, -1, -1):
                w = ws[t]
                before = states[t]
                _reads(g[b, t, h], states[t + 1], q[b, t, h], carried, dq[b, t, h])
                _writes(
                    carried,
                    before,
                    k[b, t, h],
                    v[b, t, h],
                    dk[b, t, h],
                    dv[b, t, h],
                    dw,
                )
                if p.size:
                    _erases(carried, us[t], p[b, t, h], dp[b, t, h], du)
                    _carry(carried, before, w, r[b, t, h], du, dr[b, t, h])
                else:
                    for i in range(keys):
                        for j in range(values):
                            carried[i, j] *= w[i]
                # ∂w / ∂ log w = w; one decay of a head has the sum over its channels.
                dlog = dlog_w[b, t, h]
                if len(dlog) == 1:
                    dlog[0] = 0
                    for i in range(keys):
                        dlog[0] += dw[i] * w[i]
                else:
                    for i in range(keys):
                        dlog[i] = dw[i] * w[i]


@compiled
def _decay(log_w, w):
    """Write w for every key channel."""
    if len(log_w) == 1:
        w[:] = elementwise.exp(log_w[0])
    else:
        for i in range(len(w)):
            w[i] = elementwise.exp(log_w[i])


@compiled
def _step(k, v, w, p, r, u, before, s):
    """Write u and S_t from S_{t-1}; both states may be one array."""
    keys, values = s.shape
    if len(p) == 0:
        for i in range(keys):
            s_i = s[i]
            before_i = before[i]
            w_i = w[i]
            k_i = k[i]
            for j in range(values):
                s_i[j] = w_i * before_i[j] + k_i * v[j]
        return
    # u reads all rows of the state, so that it is known before a row is written.
    u[:] = 0
    for i in range(keys):
        before_i = before[i]
        r_i = r[i]
        for j in range(values):
            u[j] += r_i * before_i[j]
    for i in range(keys):
        s_i = s[i]
        before_i = before[i]
        w_i = w[i]
        k_i = k[i]
        p_i = p[i]
        for j in range(values):
            s_i[j] = w_i * before_i[j] + k_i * v[j] - p_i * u[j]


@compiled
def _read(q, s, o):
    """Write o = Sᵀ q."""
    o[:] = 0
    for i in range(len(q)):
        s_i = s[i]
        q_i = q[i]
        for j in range(len(o)):
            o[j] += q_i * s_i[j]


@compiled
def _reads(g, s, q, carried, dq):
    """Add the gradient of S_t by its readout to `carried`; write dq."""
    for i in range(len(q)):
        s_i = s[i]
        carried_i = carried[i]
        q_i = q[i]
        total = q.dtype.type(0)
        for j in range(len(g)):
            total += s_i[j] * g[j]
            carried_i[j] += q_i * g[j]
        dq[i] = total


@compiled
def _writes(carried, before, k, v, dk, dv, dw):
    """Write dk, dv and dw from the gradient of S_t."""
    dv[:] = 0
    for i in range(len(k)):
        carried_i = carried[i]
        before_i = before[i]
        k_i = k[i]
        written = k.dtype.type(0)
        kept = k.dtype.type(0)
        for j in range(len(v)):
            written += carried_i[j] * v[j]
            kept += carried_i[j] * before_i[j]
            dv[j] += carried_i[j] * k_i
        dk[i] = written
        dw[i] = kept


@compiled
def _erases(carried, u, p, dp, du):
    """Write dp and du."""
    du[:] = 0
    for i in range(len(p)):
        carried_i = carried[i]
        p_i = p[i]
        total = p.dtype.type(0)
        for j in range(len(u)):
            total += carried_i[j] * u[j]
            du[j] -= carried_i[j] * p_i
        dp[i] = -total


@compiled
def _carry(carried, before, w, r, du, dr):
    """Write dr, and the gradient of S_{t-1} to `carried`."""
    for i in range(len(w)):
        carried_i = carried[i]
        before_i = before[i]
        w_i = w[i]
        r_i = r[i]
        total = w.dtype.type(0)
        for j in range(len(du)):
            total += before_i[j] * du[j]
            carried_i[j] = w_i * carried_i[j] + r_i * du[j]
        dr[i] = total
