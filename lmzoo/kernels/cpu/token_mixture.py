"""The kernels of `functional/token_mixture.py`, in its symbols a, s, π, p, r, g, y and δ (here d).

A kernel processes a block of `ROWS` positions of one pack member at a time. Its logits stay in the
first-level cache from the gate's product to the last use of their softmax; backward, δ stays there
until its products. e is e^(s − top), relative to the largest score of each token. If p is so small
that rounding may dominate it, the position is computed again in log space.
"""

from math import exp, inf, log

import numpy as np

from lmzoo.kernels.cpu import elementwise
from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import row_max

ROWS = 64
"""Positions in a block."""


@compiled
def forward(y, weight, bias, s, tokens, e, top, pi, p, out, min_p):
    """Write e, top, π, p and out = log p; return False at a token without scores."""
    members, positions, components = pi.shape
    buffer = np.empty((ROWS, components), pi.dtype)
    largest = np.empty(ROWS, pi.dtype)
    for i in range(members):
        _relative_exp(s[i], top[i], e[i])
        for begin in range(0, positions, ROWS):
            end = min(begin + ROWS, positions)
            a = buffer[: end - begin]
            gates = pi[i, begin:end]
            block_tokens = tokens[i, begin:end]
            for v in block_tokens:
                if not 0 <= v < len(e[i]):
                    return False
            for n in range(len(a)):
                logits = a[n]
                for k in range(components):
                    logits[k] = bias[i, k]
            product_transposed(y[i, begin:end], weight[i], a, 1)
            row_max(a, largest)
            for n in range(len(a)):
                logits = a[n]
                gate = gates[n]
                largest_n = largest[n]
                for k in range(components):
                    gate[k] = elementwise.exp(logits[k] - largest_n)
            _mix(gates, e[i], block_tokens, p[i, begin:end])
            for n in range(len(a)):
                v = block_tokens[n]
                p_n = p[i, begin + n]
                if p_n < min_p:
                    out[i, begin + n] = _log_sum(a[n], s[i, v]) - _log_sum(a[n], None)
                else:
                    out[i, begin + n] = log(p_n) + top[i, v]
    return True


@compiled
def backward(g, y, weight, bias, s, tokens, pi, e, p, min_p, dy, dweight, dbias, ds):
    """Write dy; add to dweight, dbias and ds."""
    members, positions, components = pi.shape
    buffer = np.empty((ROWS, components), pi.dtype)
    for i in range(members):
        dbias_i = dbias[i]
        for begin in range(0, positions, ROWS):
            end = min(begin + ROWS, positions)
            d = buffer[: end - begin]
            y_block = y[i, begin:end]
            block_tokens = tokens[i, begin:end]
            args = (
                g[i, begin:end],
                block_tokens,
                pi[i, begin:end],
                p[i, begin:end],
                min_p,
            )
            if _logit_gradients(*args, e[i], d, ds[i]):
                _small_logit_gradients(*args, y_block, weight[i], bias[i], s[i], d, ds[i])
            for n in range(len(d)):
                d_n = d[n]
                for k in range(components):
                    dbias_i[k] += d_n[k]
            product(d, weight[i], dy[i, begin:end], 0)
            add_outer(d, y_block, dweight[i])


@compiled
def _relative_exp(s, top, e):
    """Write each token's largest score (0 if all are −∞) and e^(s − top)."""
    row_max(s, top)
    for v in range(len(s)):
        if top[v] == -inf:
            top[v] = 0
        s_v = s[v]
        e_v = e[v]
        top_v = top[v]
        for k in range(len(e_v)):
            e_v[k] = elementwise.exp(s_v[k] - top_v)


@compiled
def _mix(gates, e, tokens, p):
    """Divide each row of the gates by its sum; write p = Σ_k gate e."""
    for n in range(len(gates)):
        gate = gates[n]
        e_n = e[tokens[n]]
        gate_sum = gates.dtype.type(0)
        total = gates.dtype.type(0)
        for k in range(len(gate)):
            gate_sum += gate[k]
            total += gate[k] * e_n[k]
        scale = gates.dtype.type(1) / gate_sum
        p[n] = total * scale
        for k in range(len(gate)):
            gate[k] *= scale


@compiled
def _logit_gradients(g, tokens, pi, p, min_p, e, d, ds):
    """Write δ and add to ds, except where p < min_p; return how many positions that are."""
    skipped = 0
    for n in range(len(d)):
        if p[n] < min_p:
            skipped += 1
            continue
        v = tokens[n]
        gate = pi[n]
        e_v = e[v]
        d_n = d[n]
        ds_v = ds[v]
        scale = g[n] / p[n]
        for k in range(len(d_n)):
            r = scale * gate[k] * e_v[k]
            ds_v[k] += r
            d_n[k] = r - g[n] * gate[k]
    return skipped


@compiled
def _small_logit_gradients(g, tokens, pi, p, min_p, y, weight, bias, s, d, ds):
    """Do what `_logit_gradients` does where p < min_p, in log space.

    It is a separate kernel because in one loop the common case would not be vectorised.
    """
    for n in range(len(d)):
        if p[n] < min_p:
            d_n = d[n]
            ds_v = ds[tokens[n]]
            _logits(y[n], weight, bias, d_n)
            _posterior(s[tokens[n]], d_n)
            for k in range(len(d_n)):
                r = g[n] * d_n[k]
                ds_v[k] += r
                d_n[k] = r - g[n] * pi[n, k]


@compiled
def _log_sum(a, s):
    """Return log Σ_k exp(a_k + s_k); log Σ_k exp(a_k) if s is None."""
    top = -inf
    for k in range(len(a)):
        top = max(top, a[k] if s is None else a[k] + s[k])
    if top == -inf:
        return top
    total = 0.0
    for k in range(len(a)):
        total += exp((a[k] if s is None else a[k] + s[k]) - top)
    return top + log(total)


@compiled
def _logits(y, weight, bias, a):
    for k in range(len(a)):
        a[k] = bias[k] + (weight[k] * y).sum()


@compiled
def _posterior(s, a):
    """Replace each a_k by exp(a_k + s_k) / Σ_j exp(a_j + s_j)."""
    total = _log_sum(a, s)
    for k in range(len(a)):
        a[k] = exp(a[k] + s[k] - total)
