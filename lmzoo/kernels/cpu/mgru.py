r"""The sweeps of the minimal gated recurrent unit (MGRU) that carries its last state.

    q = read(h)    f = σ(q W_hf), ½ without W_hf    g = act(x W_xh)
    h' = κ h + f ⊙ (ω g − λ h)          κ = carry, ω = write (0 or 1), λ = carry − keep

With δ = ∂L/∂h', and δf, δg the gradients before σ and act:

    δg = ω δ ⊙ f ⊙ act'(g)    δf = δ ⊙ (ω g − λ h) ⊙ f ⊙ (1 − f)
    ∂L/∂h = δ ⊙ (κ − λ f) + read'(h) ⊙ δf W_hfᵀ

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
    """The fields of `MGRUScan`, as kernels read them."""

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
class MGRUScan(Recurrence):
    """Weights hf, xh; None where cut. Without `write` there is no xh."""

    carry: bool = True
    write: bool = True
    keep: bool = False
    sigmoid: bool = False
    """Whether act is σ; tanh otherwise."""
    read: Read = "raw"

    def forward(self, x: KernelInputs, start: Tensor, weights: Weights) -> Saved:
        hf, xh = weights
        saved = [start.new_empty(*x.shape, start.shape[-1]) for _ in range(3)]
        args = x.projection(xh, None), *x.arrays(hf, start), self._variant
        if not run_kernel(_forward, *args, *x.step_arrays(*saved)):
            raise x.token_error()
        return saved

    def backward(
        self, upstream: Tensor, x: KernelInputs, start: Tensor, weights: Weights, saved: Saved
    ) -> tuple[Tensor, Tensor, Weights]:
        hf, xh = weights
        inputs, input_gradients = x.gradient(xh, None)
        hf_grad, delta = zero_gradient(hf), start.new_empty(start.shape)
        args = inputs, *x.arrays(hf, start), self._variant, *x.step_arrays(*saved)
        run_kernel(_backward, *x.step_arrays(upstream), *args, *x.arrays(hf_grad, delta))
        return x.input_gradient(), delta, (hf_grad, input_gradients()[0])

    @property
    def _variant(self) -> Variant:
        away, read = self.carry - self.keep, (self.read == "centred", self.read == "logit")
        return Variant(self.carry, self.write, away, self.sigmoid, *read, LIMIT)


@compiled
@no_type_check
def _forward(inputs, hf, start, variant, states, f, g):
    """Write states, f and g; return False at an invalid token."""
    steps, members, rows, width = f.shape
    kappa, omega = f.dtype.type(variant.carry), f.dtype.type(variant.write)
    lam, q = f.dtype.type(variant.away), np.empty((rows, width), f.dtype)
    if not hf.size:
        f[:] = 0.5
    for p in range(members):
        for t in range(steps):
            if not project_inputs(inputs, t, p, g[t, p]):
                return False
            h = states[t - 1, p] if t else start[p]
            h_, f_, g_, new = h.ravel(), f[t, p].ravel(), g[t, p].ravel(), states[t, p].ravel()
            if hf.size > 0:
                product(_read(h, variant, q), hf[p], f[t, p], 0)
                for i in range(len(new)):
                    f_[i] = sigmoid(f_[i])
            for i in range(len(new)):
                g_[i] = sigmoid(g_[i]) if variant.sigmoid else tanh(g_[i])
                new[i] = kappa * h_[i] + f_[i] * (omega * g_[i] - lam * h_[i])
    return True


@compiled
@no_type_check
def _backward(upstream, inputs, hf, start, variant, states, f, g, hf_grad, delta):
    """Write ∂L/∂h_0 to delta (P, B, H); add to the gradients of inputs and weights."""
    steps, members, rows, width = f.shape
    kappa, omega = f.dtype.type(variant.carry), f.dtype.type(variant.write)
    lam, one = f.dtype.type(variant.away), f.dtype.type(1)
    buffer = np.empty((4, rows, width), f.dtype)
    df, dg, q, s = buffer[0], buffer[1], buffer[2], buffer[3]
    df_, dg_, s_ = df.ravel(), dg.ravel(), s.ravel()
    delta[:] = 0
    for p in range(members):
        d = delta[p].ravel()
        for t in range(steps - 1, -1, -1):
            h = states[t - 1, p] if t else start[p]
            u, h_, f_, g_ = upstream[t, p].ravel(), h.ravel(), f[t, p].ravel(), g[t, p].ravel()
            for i in range(len(d)):
                d[i] += u[i]
                slope = (g_[i] if variant.sigmoid else one) - g_[i] * g_[i]
                dg_[i] = omega * d[i] * f_[i] * slope
                df_[i] = d[i] * (omega * g_[i] - lam * h_[i]) * f_[i] * (one - f_[i])
                d[i] *= kappa - lam * f_[i]
            if hf.size > 0:
                add_outer(_read(h, variant, q), df, hf_grad[p])
                if variant.read_logit:
                    product_transposed(df, hf[p], s, 0)
                    _add_logit_gradient(s_, h_, variant, d)
                else:
                    product_transposed(df, hf[p], delta[p], 1)
            project_gradients(inputs, t, p, dg)


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
