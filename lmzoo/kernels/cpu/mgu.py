r"""The sweeps of the minimal gated unit and of the MGRU that carries its last state.

    f = σ(x W_xf + b_f + read(h) W_hf)    c = tanh(x W_xh + b_h + (h ⊙ f) W_hh)
    h' = κ h + f ⊙ (ω c − λ h)            κ = carry, ω = write (0 or 1), λ = carry − keep

Any weight and bias may be cut. With δ = ∂L/∂h', and δf, δc the gradients before σ and tanh:

    δc = ω δ ⊙ f ⊙ (1 − c²)                          s = δc W_hhᵀ
    δf = (δ ⊙ (ω c − λ h) + s ⊙ h) ⊙ f ⊙ (1 − f)
    ∂L/∂h = δ ⊙ (κ − λ f) + f ⊙ s + read'(h) ⊙ δf W_hfᵀ

    read:  h  |  h − ½  |  atanh(u), u = clip(2h − 1, ±limit), read' = 2 / (1 − u²) within it

Derived here. `projected` has the columns x W_xf + b_f and x W_xh + b_h, 0 where cut; or, if they
are no pair, the columns of the activated candidate, and tanh is absent.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import atanh, sigmoid, tanh
from lmzoo.kernels.cpu.sweep import Sweep, add_rows, look_up

# The atanh is infinite at ±1.
LIMIT = 0.9999
"""2h − 1 is clipped to ±LIMIT before its atanh."""

Read = Literal["raw", "centred", "logit"]


# A named tuple, because numba cannot read a dataclass.
class Variant(NamedTuple):
    """The fields of `Scan`, as kernels read them."""

    pair: bool
    carry: bool
    """κ."""
    write: bool
    """ω."""
    away: int
    """λ."""
    read_centred: bool
    """Whether the gate reads h − ½."""
    read_logit: bool
    """Whether the gate reads the atanh; it reads h if neither is set."""
    limit: float


@compiled
def _forward(projected, tokens, start, hf, hh, variant, states, f, c):
    """Write states, f and c; return False at an invalid token."""
    steps, members, rows, width = f.shape
    kappa = f.dtype.type(variant.carry)
    omega = f.dtype.type(variant.write)
    lam = f.dtype.type(variant.away)
    q = np.empty((rows, width), f.dtype)
    q_ = q.ravel()
    for p in range(members):
        for t in range(steps):
            # Without a pair of inputs, f has no columns: it reads the state only.
            if not variant.pair:
                f[t, p] = 0
            elif not look_up(projected[p], tokens[p], t, 0, f[t, p]):
                return False
            if not look_up(projected[p], tokens[p], t, width * variant.pair, c[t, p]):
                return False
            if t:
                h = states[t - 1, p]
            else:
                h = start[p]
            h_ = h.ravel()
            f_ = f[t, p].ravel()
            c_ = c[t, p].ravel()
            new = states[t, p].ravel()
            if hf.size > 0:
                product(_read(h, variant, q), hf[p], f[t, p], 1)
            for i in range(len(new)):
                f_[i] = sigmoid(f_[i])
                q_[i] = h_[i] * f_[i]
            # q is f ⊙ h: the candidate waits for the gate.
            if hh.size > 0:
                product(q, hh[p], c[t, p], 1)
            for i in range(len(new)):
                c_[i] = omega * (tanh(c_[i]) if variant.pair else c_[i])
                new[i] = kappa * h_[i] - lam * q_[i] + f_[i] * c_[i]
    return True


@compiled
def _backward(
    upstream,
    tokens,
    start,
    hf,
    hh,
    variant,
    states,
    f,
    c,
    sums,
    delta,
    hf_grad,
    hh_grad,
):
    """Write ∂L/∂h_0 to delta (P, B, H); add to the gradients of inputs and weights."""
    steps, members, rows, width = f.shape
    one = f.dtype.type(1)
    kappa = f.dtype.type(variant.carry)
    lam = f.dtype.type(variant.away)
    omega = f.dtype.type(variant.write)
    # 0 or 1: without a pair the candidate has no tanh.
    curve = f.dtype.type(variant.pair)
    buffer = np.zeros((5, rows, width), f.dtype)
    df = buffer[0]
    dc = buffer[1]
    q = buffer[2]
    s = buffer[3]
    df_ = df.ravel()
    dc_ = dc.ravel()
    q_ = q.ravel()
    s_ = s.ravel()
    u = buffer[4].ravel()
    for p in range(members):
        d = delta[p].ravel()
        for t in range(steps - 1, -1, -1):
            if t:
                h = states[t - 1, p]
            else:
                h = start[p]
            g = upstream[t, p].ravel()
            h_ = h.ravel()
            f_ = f[t, p].ravel()
            c_ = c[t, p].ravel()
            for i in range(len(d)):
                d[i] += g[i]
                dc_[i] = omega * d[i] * f_[i] * (one - curve * c_[i] * c_[i])
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
                # The derivative of the read is 1, but for the atanh.
                if variant.read_logit:
                    product_transposed(df, hf[p], q, 0)
                    _add_logit_gradient(q_, h_, variant, d)
                else:
                    product_transposed(df, hf[p], delta[p], 1)
            if variant.pair:
                add_rows(sums[p], tokens[p], t, 0, df)
            add_rows(sums[p], tokens[p], t, width * variant.pair, dc)


@compiled
def _read(h, variant, q):
    """Return read(h): h itself, or the result in q."""
    one = h.dtype.type(1)
    half = h.dtype.type(0.5)
    limit = h.dtype.type(variant.limit)
    h_ = h.ravel()
    q_ = q.ravel()
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
def _add_logit_gradient(s, h, variant, d):
    """Add read'(h) ⊙ s to d, for the atanh."""
    zero = d.dtype.type(0)
    one = d.dtype.type(1)
    two = d.dtype.type(2)
    limit = d.dtype.type(variant.limit)
    for i in range(len(d)):
        u = h[i] + h[i] - one
        # Where the read is clipped it is constant.
        if abs(u) > limit:
            d[i] += zero
        else:
            d[i] += s[i] * two / (one - u * u)


@dataclass(frozen=True)
class Scan(Sweep):
    """Weights hf and hh, None where cut."""

    kernels = _forward, _backward
    writes = 3
    pair: bool = True
    carry: bool = True
    write: bool = True
    keep: bool = False
    read: Read = "raw"

    def settings(self) -> tuple[Any, ...]:
        variant = Variant(
            self.pair,
            self.carry,
            self.write,
            self.carry - self.keep,
            self.read == "centred",
            self.read == "logit",
            LIMIT,
        )
        return (variant,)
