r"""The sweeps of long short-term memory, with a forget gate, without one, or coupled.

    i, f, g, o = σ, σ, tanh, σ of x W_x + b + h W_h
    c' = f ⊙ c + i ⊙ g    q = tanh c'    h' = o ⊙ q     none: f ≡ 1    coupled: f = 1 − i

With δ = ∂L/∂h' and γ = ∂L/∂c', which first gains δ ⊙ o ⊙ (1 − q²), and δi, δf, δg, δo the
gradients before the activations, which are adjacent columns of δa:

    δo = δ ⊙ q ⊙ o ⊙ (1 − o)       δg = γ ⊙ i ⊙ (1 − g²)
    δi = γ ⊙ g ⊙ i ⊙ (1 − i)       δf = γ ⊙ c ⊙ f ⊙ (1 − f)       ∂L/∂c = γ ⊙ f
    coupled:  δi = γ ⊙ (g − c) ⊙ i ⊙ (1 − i)                      ∂L/∂c = γ ⊙ (1 − i)
    ∂L/∂h = δa W_hᵀ

Options, for cells with columns of f that are not coupled: peepholes add c ⊙ p_i, c ⊙ p_f and
c' ⊙ p_o before the activations, so that c gains δi ⊙ p_i + δf ⊙ p_f and c' gains δo ⊙ p_o; gates
read the gates before through W_a, so that i, f and o gain δa' W_aᵀ of the step after; either tanh
may be absent.

Derived here.

Gates are (T, P, B, G). The columns of g start at G − 2 H, whether or not there are columns of f.
The backward sweep computes q = tanh c' again, which takes less time than storing it.

Each dependent computation has its own loop over all rows. In one loop per row the compiler leaves
some of them without vector instructions, and a step takes twice as long.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import sigmoid, tanh
from lmzoo.kernels.cpu.sweep import Sweep, add_rows, look_up
from lmzoo.kernels.scan import Weights


@compiled
def _forward(
    projected,
    tokens,
    start_h,
    start_c,
    hidden,
    peepholes,
    feedback,
    flags,
    states,
    gates,
    memory,
):
    """Write states, gates and each c'; return False at an invalid token."""
    steps, members = states.shape[:2]
    for p in range(members):
        for t in range(steps):
            if not look_up(projected[p], tokens[p], t, 0, gates[t, p]):
                return False
            product(states[t - 1, p] if t else start_h[p], hidden[p], gates[t, p], 1)
            # No gates come before the first step.
            if feedback.size > 0 and t:
                product(gates[t - 1, p], feedback[p], gates[t, p], 1)
            if t:
                c = memory[t - 1, p]
            else:
                c = start_c[p]
            _step(gates[t, p], c, peepholes, p, flags, memory[t, p], states[t, p])
    return True


@compiled
def _backward(
    upstream,
    tokens,
    start_h,
    start_c,
    hidden,
    peepholes,
    feedback,
    flags,
    states,
    gates,
    memory,
    sums,
    delta,
    gamma,
    hidden_grad,
    peephole_grad,
    feedback_grad,
):
    """Write ∂L/∂h_0 to delta and ∂L/∂c_0 to gamma, (P, B, H); add to all other gradients."""
    steps, members = states.shape[:2]
    rows, columns = gates.shape[2:]
    da = np.empty((rows, columns), gates.dtype)
    fed = np.empty((rows if feedback.size > 0 else 0, columns), gates.dtype)
    for p in range(members):
        # No step follows the last one.
        fed[:] = 0
        for t in range(steps - 1, -1, -1):
            c = memory[t - 1, p] if t else start_c[p]
            g = upstream[t, p]
            _step_backward(
                g,
                gates[t, p],
                c,
                memory[t, p],
                peepholes,
                p,
                flags,
                delta[p],
                gamma[p],
                fed,
                da,
                peephole_grad,
            )
            # δ of the step before replaces this one: all of it passes through the gates.
            product_transposed(da, hidden[p], delta[p], 0)
            add_outer(states[t - 1, p] if t else start_h[p], da, hidden_grad[p])
            add_rows(sums[p], tokens[p], t, 0, da)
            if feedback.size > 0 and t:
                product_transposed(da, feedback[p], fed, 0)
                add_outer(gates[t - 1, p], da, feedback_grad[p])


# A loop over all rows for each dependent computation: one loop per row takes twice as long.
@compiled
def _step(gates, previous, peepholes, p, flags, memory, states):
    """Replace the pre-activations by the gates; write c' and h'."""
    coupled, squash_input, squash_output = flags
    rows, width = previous.shape
    coupling = gates.dtype.type(coupled)
    # Behind i, and behind f if there are columns of f.
    at_g = gates.shape[1] - 2 * width
    if peepholes.size > 0:
        for n in range(rows):
            _peep(gates[n], previous[n], peepholes[p, 0])
            _peep(gates[n, width:], previous[n], peepholes[p, 1])
    for n in range(rows):
        i_and_f = gates[n, :at_g]
        g = gates[n, at_g:]
        for k in range(at_g):
            i_and_f[k] = sigmoid(i_and_f[k])
        if squash_input:
            for k in range(width):
                g[k] = tanh(g[k])
    for n in range(rows):
        i = gates[n]
        f = gates[n, width:]
        g = gates[n, at_g:]
        c = previous[n]
        new = memory[n]
        if at_g > width:
            for k in range(width):
                new[k] = f[k] * c[k] + i[k] * g[k]
        else:
            for k in range(width):
                # Without columns of f: f is 1, or 1 − i where the coupling is 1.
                new[k] = c[k] + i[k] * (g[k] - coupling * c[k])
    for n in range(rows):
        o = gates[n, at_g + width :]
        # o reads c', which is known only now.
        if peepholes.size > 0:
            _peep(o, memory[n], peepholes[p, 2])
        for k in range(width):
            o[k] = sigmoid(o[k])
    for n in range(rows):
        o = gates[n, at_g + width :]
        new = memory[n]
        h = states[n]
        if squash_output:
            for k in range(width):
                h[k] = o[k] * tanh(new[k])
        else:
            for k in range(width):
                h[k] = o[k] * new[k]


@compiled
def _peep(gate, c, weight):
    """Add c ⊙ p to the pre-activations of a gate."""
    for k in range(len(c)):
        gate[k] += c[k] * weight[k]


# tanh c' is computed again, which takes less time than storing it.
@compiled
def _step_backward(
    upstream,
    gates,
    previous,
    memory,
    peepholes,
    p,
    flags,
    delta,
    gamma,
    fed,
    da,
    peephole_grad,
):
    """Write da; replace γ by ∂L/∂c."""
    coupled, squash_input, squash_output = flags
    rows, width = previous.shape
    one = gates.dtype.type(1)
    coupling = gates.dtype.type(coupled)
    at_g = gates.shape[1] - 2 * width
    for n in range(rows):
        d = delta[n]
        u = upstream[n]
        y = gamma[n]
        new = memory[n]
        o = gates[n, at_g + width :]
        do = da[n, at_g + width :]
        if squash_output:
            for k in range(width):
                dq = (d[k] + u[k]) * o[k]
                q = tanh(new[k])
                do[k] = dq * q * (one - o[k])
                y[k] += dq * (one - q * q)
        else:
            for k in range(width):
                dq = (d[k] + u[k]) * o[k]
                do[k] = dq * new[k] * (one - o[k])
                y[k] += dq
        if fed.size > 0:
            _add_fed(do, fed[n, at_g + width :], o, width)
        if peepholes.size > 0:
            _peep_backward(do, new, peepholes[p, 2], y, peephole_grad[p, 2])
    for n in range(rows):
        y = gamma[n]
        c = previous[n]
        i = gates[n]
        di = da[n]
        g = gates[n, at_g:]
        dg = da[n, at_g:]
        for k in range(width):
            dg[k] = y[k] * i[k] * (one - g[k] * g[k])
            di[k] = y[k] * (g[k] - coupling * c[k]) * i[k] * (one - i[k])
        if not squash_input:
            for k in range(width):
                dg[k] = y[k] * i[k]
    if at_g > width:
        for n in range(rows):
            y = gamma[n]
            c = previous[n]
            f = gates[n, width:]
            df = da[n, width:]
            for k in range(width):
                df[k] = y[k] * c[k] * f[k] * (one - f[k])
                y[k] *= f[k]
            if fed.size > 0:
                _add_fed(da[n], fed[n], gates[n], width)
                _add_fed(df, fed[n, width:], f, width)
            if peepholes.size > 0:
                _peep_backward(da[n], c, peepholes[p, 0], y, peephole_grad[p, 0])
                _peep_backward(df, c, peepholes[p, 1], y, peephole_grad[p, 1])
    elif coupled:
        for n in range(rows):
            y = gamma[n]
            i = gates[n]
            for k in range(width):
                y[k] *= one - i[k]


@compiled
def _add_fed(d, fed, gate, width):
    """Add what the gates of the next step pass back to a gate, before its activation."""
    one = gate.dtype.type(1)
    for k in range(width):
        d[k] += fed[k] * gate[k] * (one - gate[k])


@compiled
def _peep_backward(d, c, weight, gamma, weight_grad):
    """Add the gradients of c and of the weight, from δ of a gate that reads c ⊙ p."""
    for k in range(len(c)):
        gamma[k] += d[k] * weight[k]
        weight_grad[k] += d[k] * c[k]


@dataclass(frozen=True)
class Scan(Sweep):
    """Weights W_h, columns in the order i, f, g, o, f optional; start is (h, c).

    Two weights may follow, each present or None: peepholes (3, H), and W_a (4H, 4H), whose rows and
    columns of g are 0.
    """

    kernels = _forward, _backward
    vectors = 2
    forget: str = "gate"
    """gate; coupled: f = 1 − i; none: f ≡ 1."""
    squash_input: bool = True
    """Whether g passes tanh."""
    squash_output: bool = True
    """Whether c' passes tanh in h' = o ⊙ tanh c'."""

    def settings(self) -> tuple[Any, ...]:
        # A tuple in a tuple: the kernels take all flags as one argument.
        return ((self.forget == "coupled", self.squash_input, self.squash_output),)

    def widths(self, weights: Weights, width: int) -> Sequence[int]:
        assert weights[0] is not None
        # The gates have the columns of the weight, with or without those of f.
        return width, weights[0].shape[-1], width
