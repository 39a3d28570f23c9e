r"""The sweeps of the minimal gated unit and of the MGRU that carries its last state.

    f = σ(x W_xf + b_f + read(h) W_hf)    c = act(x W_xh + b_h + (h ⊙ f) W_hh)
    h' = κ h + f ⊙ (ω c − λ h)            κ = carry, ω = write (0 or 1), λ = carry − keep

Any weight and bias may be cut. With δ = ∂L/∂h', and δf, δc the gradients before σ and act:

    δc = ω δ ⊙ f ⊙ act'(c)                          s = δc W_hhᵀ
    δf = (δ ⊙ (ω c − λ h) + s ⊙ h) ⊙ f ⊙ (1 − f)
    ∂L/∂h = δ ⊙ (κ − λ f) + f ⊙ s + read'(h) ⊙ δf W_hfᵀ

    read:  h  |  h − ½  |  atanh(u), u = clip(2h − 1, ±limit), read' = 2 / (1 − u²) within it

Derived here.

Arrays are (T, P, B, H). A kernel runs one pack member at a time, so that what a step reads and
writes stays in the cache. A cut weight has no elements.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, no_type_check

import numpy as np
from torch import Tensor

from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import atanh, sigmoid, tanh
from lmzoo.kernels.cpu.inputs import KernelInputs, zero_gradient
from lmzoo.kernels.cpu.projection import project_gradients, project_inputs
from lmzoo.kernels.cpu.recurrence import Recurrence, Saved, Weights
from lmzoo.kernels.dispatch import run_kernel

LIMIT = 0.9999
"""2h − 1 is clipped to ±LIMIT before its atanh."""

Read = Literal["raw", "centred", "logit"]


class Variant(NamedTuple):
    """The fields of `MGUScan`, as kernels read them."""

    carry: bool
    """κ."""
    write: bool
    """ω."""
    away: int
    """λ."""
    sigmoid: bool
    """Whether act is σ; tanh otherwise."""
    read_centred: bool
    """Whether the gate reads h − ½."""
    read_logit: bool
    """Whether the gate reads the atanh; it reads h if neither is set."""
    limit: float


@dataclass(frozen=True)
class MGUScan(Recurrence):
    """Weights xf, hf, bf, xh, hh, bh; None where cut. Without `write` there is no xh, hh and bh."""

    carry: bool = True
    write: bool = True
    keep: bool = False
    sigmoid: bool = False
    """Whether act is σ; tanh otherwise."""
    read: Read = "raw"

    def forward(self, x: KernelInputs, start: Tensor, weights: Weights) -> Saved:
        xf, hf, bf, xh, hh, bh = weights
        saved = [start.new_empty(*x.shape, start.shape[-1]) for _ in range(3)]
        inputs = x.projection(xf, bf), x.projection(xh, bh)
        args = *inputs, *x.arrays(hf, hh, start), self._variant
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
        args = gate, candidate, *x.arrays(hf, hh, start), self._variant, *x.step_arrays(*saved)
        outputs = x.arrays(hf_grad, hh_grad, delta)
        run_kernel(_backward, *x.step_arrays(upstream), *args, *outputs)
        (xf_grad, bf_grad), (xh_grad, bh_grad) = gate_gradients(), candidate_gradients()
        gradients = xf_grad, hf_grad, bf_grad, xh_grad, hh_grad, bh_grad
        return x.input_gradient(), delta, gradients

    @property
    def _variant(self) -> Variant:
        away, read = self.carry - self.keep, (self.read == "centred", self.read == "logit")
        return Variant(self.carry, self.write, away, self.sigmoid, *read, LIMIT)


@compiled
@no_type_check
def _forward(gate, candidate, hf, hh, start, variant, states, f, c):
    """Write states, f and c; return False at an invalid token."""
    steps, members, rows, width = f.shape
    kappa, omega = f.dtype.type(variant.carry), f.dtype.type(variant.write)
    lam, q = f.dtype.type(variant.away), np.empty((rows, width), f.dtype)
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
                product(_read(h, variant, q), hf[p], f[t, p], 1)
            for i in range(len(new)):
                f_[i] = sigmoid(f_[i])
                q_[i] = h_[i] * f_[i]
            if hh.size > 0:
                product(q, hh[p], c[t, p], 1)
            for i in range(len(new)):
                c_[i] = omega * (sigmoid(c_[i]) if variant.sigmoid else tanh(c_[i]))
                new[i] = kappa * h_[i] - lam * q_[i] + f_[i] * c_[i]
    return True


@compiled
@no_type_check
def _backward(
    upstream, gate, candidate, hf, hh, start, variant, states, f, c, hf_grad, hh_grad, delta
):
    """Write ∂L/∂h_0 to delta (P, B, H); add to the gradients of inputs and weights."""
    steps, members, rows, width = f.shape
    one, kappa, lam = f.dtype.type(1), f.dtype.type(variant.carry), f.dtype.type(variant.away)
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
                slope = (c_[i] if variant.sigmoid else one) - c_[i] * c_[i]
                dc_[i] = d[i] * f_[i] * slope
                u[i] = d[i] * (c_[i] - lam * h_[i])
            if hh.size > 0:
                product_transposed(dc, hh[p], s, 0)  # otherwise s stays zero
            for i in range(len(d)):
                df_[i] = (u[i] + s_[i] * h_[i]) * f_[i] * (one - f_[i])
                d[i] = (kappa - lam * f_[i]) * d[i] + f_[i] * s_[i]
                q_[i] = h_[i] * f_[i]
            if hh.size > 0:
                add_outer(q, dc, hh_grad[p])
            if hf.size > 0:
                add_outer(_read(h, variant, q), df, hf_grad[p])
                if variant.read_logit:
                    product_transposed(df, hf[p], q, 0)
                    _add_logit_gradient(q_, h_, variant, d)
                else:
                    product_transposed(df, hf[p], delta[p], 1)
            project_gradients(gate, t, p, df)
            project_gradients(candidate, t, p, dc)


@compiled
@no_type_check
def _read(h, variant, q):
    """Return read(h): h itself, or the result in q."""
    one, half, limit = h.dtype.type(1), h.dtype.type(0.5), h.dtype.type(variant.limit)
    h_, q_ = h.ravel(), q.ravel()
    if variant.read_centred:
        for i in range(len(q_)):
            q_[i] = h_[i] - half
    elif variant.read_logit:
        for i in range(len(q_)):
            q_[i] = atanh(min(max(h_[i] + h_[i] - one, -limit), limit))
    else:
        return h
    return q


@compiled
@no_type_check
def _add_logit_gradient(s, h, variant, d):
    """Add read'(h) ⊙ s to d, for the atanh."""
    zero, one, two = d.dtype.type(0), d.dtype.type(1), d.dtype.type(2)
    limit = d.dtype.type(variant.limit)
    for i in range(len(d)):
        u = h[i] + h[i] - one
        d[i] += zero if abs(u) > limit else s[i] * two / (one - u * u)
