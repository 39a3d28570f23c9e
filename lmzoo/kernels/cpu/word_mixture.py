"""The loops of `functional/word_mixture.py`: its symbols are a, s, π, p, r, g and y, d being δ.

Some positions of a member at a time, whose logits stay in the first-level cache from the gate's
product to the last use of its softmax, and on the way back from δ to its products. e^s is given
relative to each word's largest score, `top`. Where what is left of p could be rounding, a
position is done again with logarithms.
"""

from math import exp, inf, log
from typing import no_type_check

import numpy as np

from lmzoo.kernels.cpu import elementwise as smooth
from lmzoo.kernels.cpu.blas import back, outer, product
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.row_max import largest

ROWS = 64
"""Positions at a time."""


@compiled
@no_type_check
def score(y, weight, bias, s, words, e, top, pi, p, out, least):
    """Fill all from e on, out = log p; False at a word that is none of those with scores."""
    members, positions, components = pi.shape
    room, most = np.empty((ROWS, components), pi.dtype), np.empty(ROWS, pi.dtype)
    for i in range(members):
        _relative(s[i], top[i], e[i])
        for begin in range(0, positions, ROWS):
            end = min(begin + ROWS, positions)
            a, some, chosen = room[: end - begin], pi[i, begin:end], words[i, begin:end]
            for v in chosen:
                if not 0 <= v < len(e[i]):
                    return False
            for n in range(len(a)):
                logits = a[n]
                for k in range(components):
                    logits[k] = bias[i, k]
            back(y[i, begin:end], weight[i], a, 1)
            largest(a, most)
            for n in range(len(a)):
                logits, gate, top_n = a[n], some[n], most[n]
                for k in range(components):
                    gate[k] = smooth.exp(logits[k] - top_n)
            _mix(some, e[i], chosen, p[i, begin:end])
            for n in range(len(a)):
                v, q = chosen[n], p[i, begin + n]
                if q < least:
                    out[i, begin + n] = _log_sum(a[n], s[i, v]) - _log_sum(a[n], None)
                else:
                    out[i, begin + n] = log(q) + top[i, v]
    return True


@compiled
@no_type_check
def reverse(g, y, weight, bias, s, words, pi, e, p, least, dy, dweight, dbias, ds):
    """Fill dy, and add to the other gradients."""
    members, positions, components = pi.shape
    room = np.empty((ROWS, components), pi.dtype)
    for i in range(members):
        total = dbias[i]
        for begin in range(0, positions, ROWS):
            end = min(begin + ROWS, positions)
            d, some, chosen = room[: end - begin], y[i, begin:end], words[i, begin:end]
            at = g[i, begin:end], chosen, pi[i, begin:end], p[i, begin:end], least
            if _through(*at, e[i], d, ds[i]):
                _through_small(*at, some, weight[i], bias[i], s[i], d, ds[i])
            for n in range(len(d)):
                one = d[n]
                for k in range(components):
                    total[k] += one[k]
            product(d, weight[i], dy[i, begin:end], 0)
            outer(d, some, dweight[i])


@compiled
@no_type_check
def _relative(s, top, e):
    """Fill each word's largest score, zero if no component knows the word, and e^(s − top)."""
    largest(s, top)
    for v in range(len(s)):
        if top[v] == -inf:
            top[v] = 0
        given, there, most = s[v], e[v], top[v]
        for k in range(len(there)):
            there[k] = smooth.exp(given[k] - most)


@compiled
@no_type_check
def _mix(gate, e, words, p):
    """Divide each row of the gate by its sum, and fill p = Σ_k gate e."""
    for n in range(len(gate)):
        row, word, whole, total = gate[n], e[words[n]], gate.dtype.type(0), gate.dtype.type(0)
        for k in range(len(row)):
            whole += row[k]
            total += row[k] * word[k]
        share = gate.dtype.type(1) / whole
        p[n] = total * share
        for k in range(len(row)):
            row[k] *= share


@compiled
@no_type_check
def _through(g, words, pi, p, least, e, d, ds):
    """Fill δ and add to ds, but for positions whose p is too small; how many these are."""
    left = 0
    for n in range(len(d)):
        if p[n] < least:
            left += 1
            continue
        v = words[n]
        gate, word, out, scores = pi[n], e[v], d[n], ds[v]
        scale = g[n] / p[n]
        for k in range(len(out)):
            r = scale * gate[k] * word[k]
            scores[k] += r
            out[k] = r - g[n] * gate[k]
    return left


@compiled
@no_type_check
def _through_small(g, words, pi, p, least, y, weight, bias, s, d, ds):
    """The same for the positions left: beside them the common case would not be vectorised."""
    for n in range(len(d)):
        if p[n] < least:
            out, scores = d[n], ds[words[n]]
            _logits(y[n], weight, bias, out)
            _shares(s[words[n]], out)
            for k in range(len(out)):
                r = g[n] * out[k]
                scores[k] += r
                out[k] = r - g[n] * pi[n, k]


@compiled
@no_type_check
def _log_sum(a, s):
    """Log Σ_k exp(a_k + s_k); without s, log Σ_k exp(a_k)."""
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
@no_type_check
def _logits(y, weight, bias, a):
    """Fill a = W y + b."""
    for k in range(len(a)):
        a[k] = bias[k] + (weight[k] * y).sum()


@compiled
@no_type_check
def _shares(s, a):
    """Put exp(a_k + s_k) / Σ_j exp(a_j + s_j) in place of each a_k."""
    total = _log_sum(a, s)
    for k in range(len(a)):
        a[k] = exp(a[k] + s[k] - total)
