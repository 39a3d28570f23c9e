r"""The sweeps of long short-term memory, with a forget gate, without one, or coupled.

    i, f, g, o = σ, σ, tanh, σ of x W_x + b + h W_h
    c' = f ⊙ c + i ⊙ g    q = tanh c'    h' = o ⊙ q     none: f ≡ 1    coupled: f = 1 − i

With δ = ∂L/∂h' and γ = ∂L/∂c', which first gains δ ⊙ o ⊙ (1 − q²), and δi, δf, δg, δo the
gradients before the activations, which are adjacent columns of δa:

    δo = δ ⊙ q ⊙ o ⊙ (1 − o)       δg = γ ⊙ i ⊙ (1 − g²)
    δi = γ ⊙ g ⊙ i ⊙ (1 − i)       δf = γ ⊙ c ⊙ f ⊙ (1 − f)       ∂L/∂c = γ ⊙ f
    coupled:  δi = γ ⊙ (g − c) ⊙ i ⊙ (1 − i)                      ∂L/∂c = γ ⊙ (1 − i)
    ∂L/∂h = δa W_hᵀ

Derived here.

Arrays are (T, P, B, H), of gates (T, P, B, G). A kernel runs one pack member at a time, so that
what a step reads and writes stays in the cache. The columns of g start at G − 2 H, whether or not
there are columns of f. The backward sweep computes q = tanh c' again, which takes less time than
storing it.

Each dependent computation has its own loop over all rows. In one loop per row the compiler leaves
some of them without vector instructions, and a step takes twice as long.
"""

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
import torch
from torch import Tensor

from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import sigmoid, tanh
from lmzoo.kernels.cpu.inputs import KernelInputs, zero_gradient
from lmzoo.kernels.cpu.projection import project_gradients, project_inputs
from lmzoo.kernels.cpu.recurrence import Recurrence, Saved, Weights
from lmzoo.kernels.dispatch import run_kernel


@dataclass(frozen=True)
class LSTMScan(Recurrence):
    """Weights W_x, b, W_h, columns in the order i, f, g, o, f optional; start is (h, c)."""

    coupled: bool = False
    """Whether f = 1 − i; otherwise f ≡ 1 if the weights have no columns of f."""

    def forward(self, x: KernelInputs, start: Tensor, weights: Weights) -> Saved:
        input_weight, bias, hidden = weights
        assert hidden is not None
        h, c = start.chunk(2, dim=-1)
        widths = h.shape[-1], hidden.shape[-1], c.shape[-1]
        saved = [start.new_empty(*x.shape, width) for width in widths]
        args = x.projection(input_weight, bias), *x.arrays(hidden, h, c), self.coupled
        if not run_kernel(_forward, *args, *x.step_arrays(*saved)):
            raise x.token_error()
        return saved

    def backward(
        self, upstream: Tensor, x: KernelInputs, start: Tensor, weights: Weights, saved: Saved
    ) -> tuple[Tensor, Tensor, Weights]:
        input_weight, bias, hidden = weights
        h, c = start.chunk(2, dim=-1)
        inputs, input_gradients = x.gradient(input_weight, bias)
        hidden_grad, (delta, gamma) = zero_gradient(hidden), start.new_empty(2, *h.shape)
        args = inputs, *x.arrays(hidden, h, c), self.coupled, *x.step_arrays(*saved)
        outputs = x.arrays(hidden_grad, delta, gamma)
        run_kernel(_backward, *x.step_arrays(upstream), *args, *outputs)
        gradients = *input_gradients(), hidden_grad
        return x.input_gradient(), torch.cat([delta, gamma], dim=-1), gradients


@compiled
@no_type_check
def _forward(inputs, hidden, start_h, start_c, coupled, states, gates, memory):
    """Write states, gates and each c'; return False at an invalid token."""
    steps, members = states.shape[:2]
    for p in range(members):
        for t in range(steps):
            if not project_inputs(inputs, t, p, gates[t, p]):
                return False
            product(states[t - 1, p] if t else start_h[p], hidden[p], gates[t, p], 1)
            c = memory[t - 1, p] if t else start_c[p]
            _step(gates[t, p], c, coupled, memory[t, p], states[t, p])
    return True


@compiled
@no_type_check
def _backward(
    upstream, inputs, hidden, start_h, start_c, coupled, states, gates, memory,
    hidden_grad, delta, gamma,
):  # fmt: skip
    """Write ∂L/∂h_0 to delta and ∂L/∂c_0 to gamma, (P, B, H); add to all other gradients."""
    steps, members = states.shape[:2]
    da = np.empty(gates.shape[2:], gates.dtype)
    delta[:] = 0
    gamma[:] = 0
    for p in range(members):
        for t in range(steps - 1, -1, -1):
            c, g = memory[t - 1, p] if t else start_c[p], upstream[t, p]
            _step_backward(g, gates[t, p], c, memory[t, p], coupled, delta[p], gamma[p], da)
            product_transposed(da, hidden[p], delta[p], 0)
            add_outer(states[t - 1, p] if t else start_h[p], da, hidden_grad[p])
            project_gradients(inputs, t, p, da)


@compiled
@no_type_check
def _step(gates, previous, coupled, memory, states):
    """Replace the pre-activations by the gates; write c' and h'."""
    rows, width = previous.shape
    coupling, at_g = gates.dtype.type(coupled), gates.shape[1] - 2 * width
    for n in range(rows):
        i_and_f, g, o = gates[n, :at_g], gates[n, at_g:], gates[n, at_g + width :]
        for k in range(at_g):
            i_and_f[k] = sigmoid(i_and_f[k])
        for k in range(width):
            g[k] = tanh(g[k])
            o[k] = sigmoid(o[k])
    for n in range(rows):
        i, f, g, c, new = gates[n], gates[n, width:], gates[n, at_g:], previous[n], memory[n]
        if at_g > width:
            for k in range(width):
                new[k] = f[k] * c[k] + i[k] * g[k]
        else:
            for k in range(width):
                new[k] = c[k] + i[k] * (g[k] - coupling * c[k])
    for n in range(rows):
        o, new, h = gates[n, at_g + width :], memory[n], states[n]
        for k in range(width):
            h[k] = o[k] * tanh(new[k])


@compiled
@no_type_check
def _step_backward(upstream, gates, previous, memory, coupled, delta, gamma, da):
    """Write da; replace γ by ∂L/∂c."""
    rows, width = previous.shape
    one, coupling = gates.dtype.type(1), gates.dtype.type(coupled)
    at_g = gates.shape[1] - 2 * width
    for n in range(rows):
        d, u, y, new = delta[n], upstream[n], gamma[n], memory[n]
        o, do = gates[n, at_g + width :], da[n, at_g + width :]
        for k in range(width):
            dq, q = (d[k] + u[k]) * o[k], tanh(new[k])
            do[k] = dq * q * (one - o[k])
            y[k] += dq * (one - q * q)
    for n in range(rows):
        y, c, i, di, g, dg = gamma[n], previous[n], gates[n], da[n], gates[n, at_g:], da[n, at_g:]
        for k in range(width):
            dg[k] = y[k] * i[k] * (one - g[k] * g[k])
            di[k] = y[k] * (g[k] - coupling * c[k]) * i[k] * (one - i[k])
    if at_g > width:
        for n in range(rows):
            y, c, f, df = gamma[n], previous[n], gates[n, width:], da[n, width:]
            for k in range(width):
                df[k] = y[k] * c[k] * f[k] * (one - f[k])
                y[k] *= f[k]
    elif coupled:
        for n in range(rows):
            y, i = gamma[n], gates[n]
            for k in range(width):
                y[k] *= one - i[k]
