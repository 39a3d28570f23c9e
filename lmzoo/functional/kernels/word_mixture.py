"""The loops of `functional/word_mixture.py`: its symbols are a, s, π, p, r, g and y, δ being da.

e^s is given relative to each word's largest score, `top`. Where what is left of p could be
rounding, a position is done again with logarithms.
"""

from math import exp, inf, log
from typing import no_type_check

from lmzoo.functional.kernels.compiled import compiled


@compiled
@no_type_check
def score(a, pi, s, e, top, words, p, out, least):
    """Fill p and out = log p + top; False at a word that is none of those with scores."""
    members, positions, components = pi.shape
    for i in range(members):
        for n in range(positions):
            v = words[i, n]
            if not 0 <= v < e.shape[1]:
                return False
            gate, word = pi[i, n], e[i, v]
            total = p.dtype.type(0)
            for k in range(components):
                total += gate[k] * word[k]
            p[i, n] = total
            if total < least:
                out[i, n] = _log_sum(a[i, n], s[i, v]) - _log_sum(a[i, n], None)
            else:
                out[i, n] = log(total) + top[i, v]
    return True


@compiled
@no_type_check
def reverse(words, pi, e, p, g, least, da, ds):
    """Fill da and add to ds, but for positions whose p is too small; how many these are."""
    members, positions, components = pi.shape
    left = 0
    for i in range(members):
        for n in range(positions):
            if p[i, n] < least:
                left += 1
                continue
            v = words[i, n]
            gate, word, out, scores = pi[i, n], e[i, v], da[i, n], ds[i, v]
            scale = g[i, n] / p[i, n]
            for k in range(components):
                r = scale * gate[k] * word[k]
                scores[k] += r
                out[k] = r - g[i, n] * gate[k]
    return left


@compiled
@no_type_check
def reverse_small(y, weight, bias, s, words, pi, p, g, least, da, ds):
    """The same for the positions left: beside them the common case would not be vectorised."""
    members, positions, components = pi.shape
    for i in range(members):
        for n in range(positions):
            if p[i, n] < least:
                out, scores = da[i, n], ds[i, words[i, n]]
                _logits(y[i, n], weight[i], bias[i], out)
                _shares(s[i, words[i, n]], out)
                for k in range(components):
                    r = g[i, n] * out[k]
                    scores[k] += r
                    out[k] = r - g[i, n] * pi[i, n, k]


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
