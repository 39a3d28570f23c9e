"""The kernels of `functional/matrix_state.py`, in its symbols.

q, k, p, r (B, T, n, K); v, o (B, T, n, V); log w (B, T, n, D), D = K or 1; states (B, n, K, V).
p and r have no elements in a cell without a delta rule. A kernel computes one sequence and head
at a time; the backward kernel computes its states again.
"""

from typing import no_type_check

import numpy as np

from lmzoo.kernels.cpu import elementwise
from lmzoo.kernels.cpu.compiled import compiled


@compiled
@no_type_check
def forward(q, k, v, log_w, start, p, r, o, end):
    """Write the outputs and the last state."""
    rows, steps, heads, keys = q.shape
    w, u = np.empty(keys, q.dtype), np.empty(v.shape[3], q.dtype)
    for b in range(rows):
        for h in range(heads):
            s = end[b, h]
            s[:] = start[b, h]
            for t in range(steps):
                _decay(log_w[b, t, h], w)
                erased = (p[b, t, h], r[b, t, h]) if p.size else (w[:0], w[:0])
                _step(k[b, t, h], v[b, t, h], w, erased[0], erased[1], u, s, s)
                _read(q[b, t, h], s, o[b, t, h])


@compiled
@no_type_check
def backward(g, g_end, q, k, v, log_w, start, p, r, dq, dk, dv, dlog_w, dstart, dp, dr):
    """Write the gradients of all inputs from those of o and of the last state."""
    rows, steps, heads, keys = q.shape
    values = v.shape[3]
    states = np.empty((steps + 1, keys, values), q.dtype)
    ws, us = np.empty((steps, keys), q.dtype), np.empty((steps, values), q.dtype)
    dw, du = np.empty(keys, q.dtype), np.empty(values, q.dtype)
    none = dw[:0]
    for b in range(rows):
        for h in range(heads):
            states[0] = start[b, h]
            for t in range(steps):
                _decay(log_w[b, t, h], ws[t])
                erased = (p[b, t, h], r[b, t, h]) if p.size else (none, none)
                _step(
                    k[b, t, h], v[b, t, h], ws[t], erased[0], erased[1], us[t],
                    states[t], states[t + 1],
                )  # fmt: skip
            carried = dstart[b, h]
            carried[:] = g_end[b, h]
            for t in range(steps - 1, -1, -1):
                w, before = ws[t], states[t]
                _reads(g[b, t, h], states[t + 1], q[b, t, h], carried, dq[b, t, h])
                _writes(carried, before, k[b, t, h], v[b, t, h], dk[b, t, h], dv[b, t, h], dw)
                if p.size:
                    _erases(carried, us[t], p[b, t, h], dp[b, t, h], du)
                    _carry(carried, before, w, r[b, t, h], du, dr[b, t, h])
                else:
                    for i in range(keys):
                        for j in range(values):
                            carried[i, j] *= w[i]
                dlog = dlog_w[b, t, h]
                if len(dlog) == 1:
                    dlog[0] = 0
                    for i in range(keys):
                        dlog[0] += dw[i] * w[i]
                else:
                    for i in range(keys):
                        dlog[i] = dw[i] * w[i]


@compiled
@no_type_check
def _decay(log_w, w):
    """Write w for every key channel."""
    if len(log_w) == 1:
        w[:] = elementwise.exp(log_w[0])
    else:
        for i in range(len(w)):
            w[i] = elementwise.exp(log_w[i])


@compiled
@no_type_check
def _step(k, v, w, p, r, u, before, s):
    """Write u and S_t from S_{t-1}; both states may be one array."""
    keys, values = s.shape
    if len(p) == 0:
        for i in range(keys):
            s_i, before_i, w_i, k_i = s[i], before[i], w[i], k[i]
            for j in range(values):
                s_i[j] = w_i * before_i[j] + k_i * v[j]
        return
    u[:] = 0
    for i in range(keys):
        before_i, r_i = before[i], r[i]
        for j in range(values):
            u[j] += r_i * before_i[j]
    for i in range(keys):
        s_i, before_i, w_i, k_i, p_i = s[i], before[i], w[i], k[i], p[i]
        for j in range(values):
            s_i[j] = w_i * before_i[j] + k_i * v[j] - p_i * u[j]


@compiled
@no_type_check
def _read(q, s, o):
    """Write o = Sᵀ q."""
    o[:] = 0
    for i in range(len(q)):
        s_i, q_i = s[i], q[i]
        for j in range(len(o)):
            o[j] += q_i * s_i[j]


@compiled
@no_type_check
def _reads(g, s, q, carried, dq):
    """Add the gradient of S_t by its readout to `carried`; write dq."""
    for i in range(len(q)):
        s_i, carried_i, q_i, total = s[i], carried[i], q[i], q.dtype.type(0)
        for j in range(len(g)):
            total += s_i[j] * g[j]
            carried_i[j] += q_i * g[j]
        dq[i] = total


@compiled
@no_type_check
def _writes(carried, before, k, v, dk, dv, dw):
    """Write dk, dv and dw from the gradient of S_t."""
    dv[:] = 0
    for i in range(len(k)):
        carried_i, before_i, k_i = carried[i], before[i], k[i]
        written, kept = k.dtype.type(0), k.dtype.type(0)
        for j in range(len(v)):
            written += carried_i[j] * v[j]
            kept += carried_i[j] * before_i[j]
            dv[j] += carried_i[j] * k_i
        dk[i], dw[i] = written, kept


@compiled
@no_type_check
def _erases(carried, u, p, dp, du):
    """Write dp and du."""
    du[:] = 0
    for i in range(len(p)):
        carried_i, p_i, total = carried[i], p[i], p.dtype.type(0)
        for j in range(len(u)):
            total += carried_i[j] * u[j]
            du[j] -= carried_i[j] * p_i
        dp[i] = -total


@compiled
@no_type_check
def _carry(carried, before, w, r, du, dr):
    """Write dr, and the gradient of S_{t-1} to `carried`."""
    for i in range(len(w)):
        carried_i, before_i, w_i, r_i = carried[i], before[i], w[i], r[i]
        total = w.dtype.type(0)
        for j in range(len(du)):
            total += before_i[j] * du[j]
            carried_i[j] = w_i * carried_i[j] + r_i * du[j]
        dr[i] = total
