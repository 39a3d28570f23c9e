r"""The sweeps of the gated recurrent unit, with the reset after or before the state's product.

    r, z = σ( x W_x + b + h W_g )
    n = tanh( x W_n + b_n + r ⊙ m ),  m = h W_h + b_h     reset=after
      | tanh( x W_n + b_n + (r ⊙ h) W_h )                 reset=before
    h' = n + z ⊙ (h − n)  |  h + z ⊙ (n − h)              z keeps | z writes

With δ = ∂L/∂h' and δr, δz, δn the gradients before the activations, z keeping:

    δn = δ ⊙ (1 − z) ⊙ (1 − n²)      δz = δ ⊙ (h − n) ⊙ z ⊙ (1 − z)
    after    δm = δn ⊙ r,      δr = δm ⊙ m ⊙ (1 − r)
             ∂L/∂h = δ ⊙ z + [δr, δz] W_gᵀ + δm W_hᵀ
    before   s = δn W_hᵀ,      δr = s ⊙ h ⊙ r ⊙ (1 − r)
             ∂L/∂h = δ ⊙ z + [δr, δz] W_gᵀ + s ⊙ r

Where z writes, exchange z and 1 − z, and change the sign of δz. Derived here.

Arrays are (T, P, B, H). A kernel runs one pack member at a time, so that what a step reads and
writes stays in the cache. `inputs` is the input's part of r, z and n, `inner` the bias of m. The
three pre-activations of a step, or their gradients, are adjacent columns, so one product serves
all. A loop writes only one of the three: if it writes more, the compiler assumes that they
overlap and does not vectorise.
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
class GRUScan(Recurrence):
    """Weights W_x (columns r, z, n), its bias, W_g (columns r, z), W_h, b_h (None if before)."""

    reset_before: bool = False

    def forward(self, x: KernelInputs, start: Tensor, weights: Weights) -> Saved:
        input_weight, bias, gate, hidden, hidden_bias = weights
        saved = [start.new_empty(*x.shape, start.shape[-1]) for _ in range(5)]
        inputs = x.projection(input_weight, bias), x.projection(None, hidden_bias)
        args = *inputs, *x.arrays(gate, hidden, start), self.reset_before
        if not run_kernel(_forward, *args, *x.step_arrays(*saved)):
            raise x.token_error()
        return saved

    def backward(
        self, upstream: Tensor, x: KernelInputs, start: Tensor, weights: Weights, saved: Saved
    ) -> tuple[Tensor, Tensor, Weights]:
        input_weight, bias, gate, hidden, hidden_bias = weights
        inputs, input_gradients = x.gradient(input_weight, bias)
        inner, inner_gradients = x.gradient(None, hidden_bias)
        gate_grad, hidden_grad = zero_gradient(gate), zero_gradient(hidden)
        delta = start.new_empty(start.shape)
        args = inputs, inner, *x.arrays(gate, hidden, start), self.reset_before
        outputs = x.arrays(gate_grad, hidden_grad, delta)
        run_kernel(_backward, *x.step_arrays(upstream), *args, *x.step_arrays(*saved), *outputs)
        gradients = *input_gradients(), gate_grad, hidden_grad, inner_gradients()[1]
        return x.input_gradient(), delta, gradients


@compiled
@no_type_check
def _forward(inputs, inner, gate, hidden, start, reset_before, states, r, z, n, m):
    """Write states, r, z, n and m (r ⊙ h if `reset_before`); return False at an invalid token."""
    steps, members, rows, width = m.shape
    a = np.empty((rows, 3 * width), m.dtype)
    a_rz, a_n = a[:, : 2 * width], a[:, 2 * width :]
    for p in range(members):
        for t in range(steps):
            h = states[t - 1, p] if t else start[p]
            if not project_inputs(inputs, t, p, a):
                return False
            product(h, gate[p], a_rz, 1)
            _open(a, r[t, p], z[t, p])
            if reset_before:
                _multiply(r[t, p].ravel(), h.ravel(), m[t, p].ravel())
                product(m[t, p], hidden[p], a_n, 1)
            else:
                project_inputs(inner, t, p, m[t, p])
                product(h, hidden[p], m[t, p], 1)
            _update(a, h, reset_before, r[t, p], z[t, p], n[t, p], m[t, p], states[t, p])
    return True


@compiled
@no_type_check
def _open(a, r, z):
    """Write r and z."""
    rows, width = r.shape
    for b in range(rows):
        a_r, a_z, r_, z_ = a[b, :width], a[b, width : 2 * width], r[b], z[b]
        for i in range(len(r_)):
            r_[i] = sigmoid(a_r[i])
            z_[i] = sigmoid(a_z[i])


@compiled
@no_type_check
def _multiply(r, h, m):
    for i in range(len(m)):
        m[i] = r[i] * h[i]


@compiled
@no_type_check
def _update(a, h, reset_before, r, z, n, m, new):
    """Write n and h'."""
    rows, width = new.shape
    one = new.dtype.type(1)
    for b in range(rows):
        a_n, h_, r_, z_ = a[b, 2 * width :], h[b], r[b], z[b]
        n_, m_, new_ = n[b], m[b], new[b]
        for i in range(len(new_)):
            n_[i] = tanh(a_n[i] if reset_before else a_n[i] + r_[i] * m_[i])
            new_[i] = z_[i] * h_[i] + (one - z_[i]) * n_[i]


@compiled
@no_type_check
def _backward(
    upstream, inputs, inner, gate, hidden, start, reset_before, states, r, z, n, m,
    gate_grad, hidden_grad, delta,
):  # fmt: skip
    """Write ∂L/∂h_0 to delta (P, B, H); add to the gradients of inputs and weights."""
    steps, members, rows, width = m.shape
    da, buffer = np.empty((rows, 3 * width), m.dtype), np.empty((2, rows, width), m.dtype)
    drz, dn, s = da[:, : 2 * width], buffer[0], buffer[1]
    delta[:] = 0
    for p in range(members):
        d = delta[p]
        for t in range(steps - 1, -1, -1):
            h = states[t - 1, p] if t else start[p]
            _update_backward(upstream[t, p], h, z[t, p], n[t, p], d, da, dn)
            if reset_before:
                product_transposed(dn, hidden[p], s, 0)
                _reset_before_backward(r[t, p], h, s, d, da)
                add_outer(m[t, p], dn, hidden_grad[p])
            else:
                _reset_after_backward(r[t, p], m[t, p], dn, s, da)
                product_transposed(s, hidden[p], d, 1)
                add_outer(h, s, hidden_grad[p])
                project_gradients(inner, t, p, s)
            product_transposed(drz, gate[p], d, 1)
            add_outer(h, drz, gate_grad[p])
            project_gradients(inputs, t, p, da)


@compiled
@no_type_check
def _update_backward(upstream, h, z, n, delta, da, dn):
    """Write δz and δn (to da and to dn); replace δ by its direct part of ∂L/∂h."""
    rows, width = delta.shape
    one = delta.dtype.type(1)
    for b in range(rows):
        g, d, h_, z_, n_ = upstream[b], delta[b], h[b], z[b], n[b]
        dz_, da_n, dn_ = da[b, width : 2 * width], da[b, 2 * width :], dn[b]
        for i in range(len(d)):
            d[i] += g[i]
            write = one - z_[i]
            dz_[i] = d[i] * (h_[i] - n_[i]) * z_[i] * write
            dn_[i] = d[i] * write * (one - n_[i] * n_[i])
            d[i] *= z_[i]
        for i in range(len(d)):
            da_n[i] = dn_[i]


@compiled
@no_type_check
def _reset_before_backward(r, h, s, delta, da):
    """Write δr; add s ⊙ r to δ."""
    rows, width = delta.shape
    one = delta.dtype.type(1)
    for b in range(rows):
        d, h_, r_, s_, dr_ = delta[b], h[b], r[b], s[b], da[b, :width]
        for i in range(len(d)):
            dr_[i] = s_[i] * h_[i] * r_[i] * (one - r_[i])
            d[i] += s_[i] * r_[i]


@compiled
@no_type_check
def _reset_after_backward(r, m, dn, dm, da):
    """Write δr and δm."""
    rows, width = m.shape
    one = m.dtype.type(1)
    for b in range(rows):
        r_, m_, dn_, dm_, dr_ = r[b], m[b], dn[b], dm[b], da[b, :width]
        for i in range(len(dm_)):
            dm_[i] = dn_[i] * r_[i]
            dr_[i] = dm_[i] * m_[i] * (one - r_[i])
