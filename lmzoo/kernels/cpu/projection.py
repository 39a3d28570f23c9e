"""From what a recurrence reads to a gate, and back, in compiled sweeps: a step of a member.

    fill     a_t = x_t W + b,  or rows[w_t] where inputs are words and rows = table W + b
    spend    ∂L/∂W += x_tᵀ d_t,  ∂L/∂b += Σ_b d_tb,  ∂L/∂x_t += d_t Wᵀ,  or sums[w_t] += d_t

What there is not (words or vectors, a weight, a bias) is an array without numbers.
"""

from typing import Any, NamedTuple, no_type_check

from lmzoo.kernels.cpu.blas import back, outer, product
from lmzoo.kernels.cpu.compiled import compiled


class InputProjection(NamedTuple):
    """What `fill` reads, of so many axes as `AXES` says."""

    words: Any
    """(T, P, B)."""
    rows: Any
    """(P, V, G), the bias in it."""
    x: Any
    """(T, P, B, E)."""
    weight: Any
    """(P, E, G)."""
    bias: Any
    """(P, G)."""


class ProjectionGradient(NamedTuple):
    """What `spend` reads and adds to."""

    words: Any
    sums: Any
    """(P, V, G)."""
    x: Any
    weight: Any
    of_weight: Any
    of_bias: Any
    of_x: Any
    """(T, P, B, E)."""
    first: bool = False
    """Whether no other gate has written `of_x` yet."""


AXES = {"words": 3, "rows": 3, "sums": 3, "x": 4, "weight": 3, "bias": 2}
"""Of each field, and of the gradient `of_` it."""


@compiled
@no_type_check
def project_inputs(into, t, p, out):
    """Fill a step's pre-activations (B, G), as far as inputs make them; False at a strange word."""
    if into.rows.size > 0:
        words, rows = into.words[t, p], into.rows[p]
        for b in range(len(words)):
            v = words[b]
            if not 0 <= v < len(rows):
                return False
            here, there = out[b], rows[v]
            for i in range(len(here)):
                here[i] = there[i]
        return True
    biased = into.bias.size > 0
    if biased:
        bias = into.bias[p]
        for b in range(len(out)):
            here = out[b]
            for i in range(len(here)):
                here[i] = bias[i]
    if into.weight.size > 0:
        product(into.x[t, p], into.weight[p], out, biased)
    elif not biased:
        out[:] = 0
    return True


@compiled
@no_type_check
def project_gradients(into, t, p, d):
    """Add a step's share of the gradients of what `fill` read."""
    if into.sums.size > 0:
        words, sums = into.words[t, p], into.sums[p]
        for b in range(len(words)):
            here, there = d[b], sums[words[b]]
            for i in range(len(here)):
                there[i] += here[i]
        return
    if into.weight.size > 0:
        outer(into.x[t, p], d, into.of_weight[p])
        back(d, into.weight[p], into.of_x[t, p], not into.first)
    if into.of_bias.size > 0:
        total = into.of_bias[p]
        for b in range(len(d)):
            here = d[b]
            for i in range(len(here)):
                total[i] += here[i]
