r"""The sweeps of the minimal gated unit; any of its paths may be cut.

    f = σ(x W_xf + b_f + h W_hf)    c = tanh(x W_xh + b_h + (h ⊙ f) W_hh)
    h' = κ (1 − f) ⊙ h + f ⊙ c                      κ = 0 where carry is cut, 1 otherwise

With δ = ∂L/∂h', and δf, δc the gradients before σ and tanh:

    δc = δ ⊙ f ⊙ (1 − c²)                           s = δc W_hhᵀ
    δf = (δ ⊙ (c − κ h) + s ⊙ h) ⊙ f ⊙ (1 − f)
    ∂L/∂h = κ (1 − f) ⊙ δ + f ⊙ s + δf W_hfᵀ

Where write is cut, W_xh, b_h and W_hh are cut, so that c = 0. Derived here.

Arrays are (T, P, B, H). A kernel runs one pack member at a time, so that what a step reads and
writes stays in the cache. A cut weight has no elements.
"""

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from torch import Tensor

from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import sigmoid, tanh
from lmzoo.kernels.cpu.inputs import KernelInputs, zero_gradient
from lmzoo.kernels.cpu.projection import project_gradients, project_inputs
from lmzoo.kernels.cpu.recurrence import Recurrence, Saved, Weights
from lmzoo.kernels.dispatch import run_kernel


@dataclass(frozen=True)
class MGUScan(Recurrence):
    """Weights xf, hf, bf, xh, hh, bh; None where cut."""

    carry: bool = True

    def forward(self, x: KernelInputs, start: Tensor, weights: Weights) -> Saved:
        xf, hf, bf, xh, hh, bh = weights
        saved = [start.new_empty(*x.shape, start.shape[-1]) for _ in range(3)]
        inputs = x.projection(xf, bf), x.projection(xh, bh)
        args = *inputs, *x.arrays(hf, hh, start), self.carry
        if not run_kernel(_forward, *args, *x.step_arrays(*saved)):
            raise x.token_error()
        return saved

    def backward(
        self, upstream: Tensor, x: KernelInputs, start: Tensor, weights: Weights, saved: Saved
    ) -> tuple[Tensor, Tensor, Weights]:
        xf, hf, bf, xh, hh, bh = weights
        gate, gate_gradients = x.gradient(xf, bf)
        candidate, candidate_gradients = x.gradient(xh, bh)
        hf_grad, hh_grad = zero_gradient(hf), zero_gradient(hh)
        delta = start.new_empty(start.shape)
        args = gate, candidate, *x.arrays(hf, hh, start), self.carry, *x.step_arrays(*saved)
        outputs = x.arrays(hf_grad, hh_grad, delta)
        run_kernel(_backward, *x.step_arrays(upstream), *args, *outputs)
        (xf_grad, bf_grad), (xh_grad, bh_grad) = gate_gradients(), candidate_gradients()
        gradients = xf_grad, hf_grad, bf_grad, xh_grad, hh_grad, bh_grad
        return x.input_gradient(), delta, gradients


@compiled
@no_type_check
def _forward(gate, candidate, hf, hh, start, carry, states, f, c):
    """Write states, f and c; return False at an invalid token."""
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
def _backward(
    upstream, gate, candidate, hf, hh, start, carry, states, f, c, hf_grad, hh_grad, delta
):
    """Write ∂L/∂h_0 to delta (P, B, H); add to the gradients of inputs and weights."""
    steps, members, rows, width = f.shape
    one, kappa = f.dtype.type(1), f.dtype.type(carry)
    buffer = np.zeros((5, rows, width), f.dtype)
    df, dc, q, s = buffer[0], buffer[1], buffer[2], buffer[3]
    df_, dc_, q_, s_, u = df.ravel(), dc.ravel(), q.ravel(), s.ravel(), buffer[4].ravel()
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
                product_transposed(dc, hh[p], s, 0)  # otherwise s stays zero
            for i in range(len(d)):
                df_[i] = (u[i] + s_[i] * h_[i]) * f_[i] * (one - f_[i])
                d[i] = kappa * (one - f_[i]) * d[i] + f_[i] * s_[i]
                q_[i] = h_[i] * f_[i]
            if hf.size > 0:
                product_transposed(df, hf[p], delta[p], 1)
                add_outer(h, df, hf_grad[p])
            if hh.size > 0:
                add_outer(q, dc, hh_grad[p])
            project_gradients(gate, t, p, df)
            project_gradients(candidate, t, p, dc)
