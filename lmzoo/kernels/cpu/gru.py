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

W_g and W_h are the columns r, z and n of one weight. The three pre-activations of a step, or their
gradients, are adjacent columns, so one product serves all. A loop writes only one of the three: if
it writes more, the compiler assumes that they overlap and does not vectorise.
"""

from dataclasses import dataclass

import numpy as np

from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import sigmoid, tanh
from lmzoo.kernels.cpu.sweep import Sweep, add_rows, look_up


@compiled
def _forward(projected, tokens, start, weight, bias, reset_before, states, r, z, n, m):
    """Write states, r, z, n and m (r ⊙ h if `reset_before`); return False at an invalid token."""
    steps, members, rows, width = m.shape
    a = np.empty((rows, 3 * width), m.dtype)
    a_rz = a[:, : 2 * width]
    a_n = a[:, 2 * width :]
    for p in range(members):
        gate = weight[p, :, : 2 * width]
        hidden = weight[p, :, 2 * width :]
        for t in range(steps):
            if t:
                h = states[t - 1, p]
            else:
                h = start[p]
            # A kernel cannot raise: False ends the sweep, and its caller raises.
            if not look_up(projected[p], tokens[p], t, 0, a):
                return False
            product(h, gate, a_rz, 1)
            _open(a, r[t, p], z[t, p])
            if reset_before:
                _multiply(r[t, p].ravel(), h.ravel(), m[t, p].ravel())
                product(m[t, p], hidden, a_n, 1)
            else:
                # The product adds to what is there.
                m[t, p] = bias[p]
                product(h, hidden, m[t, p], 1)
            _update(
                a,
                h,
                reset_before,
                r[t, p],
                z[t, p],
                n[t, p],
                m[t, p],
                states[t, p],
            )
    return True


@compiled
def _open(a, r, z):
    """Write r and z."""
    rows, width = r.shape
    for b in range(rows):
        a_r = a[b, :width]
        a_z = a[b, width : 2 * width]
        r_ = r[b]
        z_ = z[b]
        for i in range(len(r_)):
            r_[i] = sigmoid(a_r[i])
            z_[i] = sigmoid(a_z[i])


@compiled
def _multiply(r, h, m):
    for i in range(len(m)):
        m[i] = r[i] * h[i]


@compiled
def _update(a, h, reset_before, r, z, n, m, new):
    """Write n and h'."""
    rows, width = new.shape
    one = new.dtype.type(1)
    for b in range(rows):
        a_n = a[b, 2 * width :]
        h_ = h[b]
        r_ = r[b]
        z_ = z[b]
        n_ = n[b]
        m_ = m[b]
        new_ = new[b]
        for i in range(len(new_)):
            n_[i] = tanh(a_n[i] if reset_before else a_n[i] + r_[i] * m_[i])
            new_[i] = z_[i] * h_[i] + (one - z_[i]) * n_[i]


@compiled
def _backward(
    upstream,
    tokens,
    start,
    weight,
    bias,
    reset_before,
    states,
    r,
    z,
    n,
    m,
    sums,
    delta,
    weight_grad,
    bias_grad,
):
    """Write ∂L/∂h_0 to delta (P, B, H); add to the gradients of inputs and weights."""
    steps, members, rows, width = m.shape
    da = np.empty((rows, 3 * width), m.dtype)
    buffer = np.empty((2, rows, width), m.dtype)
    drz = da[:, : 2 * width]
    dn = buffer[0]
    s = buffer[1]
    for p in range(members):
        d = delta[p]
        gate = weight[p, :, : 2 * width]
        hidden = weight[p, :, 2 * width :]
        gate_grad = weight_grad[p, :, : 2 * width]
        hidden_grad = weight_grad[p, :, 2 * width :]
        for t in range(steps - 1, -1, -1):
            if t:
                h = states[t - 1, p]
            else:
                h = start[p]
            _update_backward(upstream[t, p], h, z[t, p], n[t, p], d, da, dn)
            if reset_before:
                product_transposed(dn, hidden, s, 0)
                _reset_before_backward(r[t, p], h, s, d, da)
                add_outer(m[t, p], dn, hidden_grad)
            else:
                _reset_after_backward(r[t, p], m[t, p], dn, s, da)
                product_transposed(s, hidden, d, 1)
                add_outer(h, s, hidden_grad)
                _add_bias(s, bias_grad[p, 0])
            # After the reset's part: δ has its direct part already, and each product adds one.
            product_transposed(drz, gate, d, 1)
            add_outer(h, drz, gate_grad)
            add_rows(sums[p], tokens[p], t, 0, da)


# For reset=after; the other form adds b_h to the inputs.
@compiled
def _add_bias(d, total):
    for b in range(len(d)):
        d_ = d[b]
        for i in range(len(d_)):
            total[i] += d_[i]


@compiled
def _update_backward(upstream, h, z, n, delta, da, dn):
    """Write δz and δn (to da and to dn); replace δ by its direct part of ∂L/∂h."""
    rows, width = delta.shape
    one = delta.dtype.type(1)
    for b in range(rows):
        g = upstream[b]
        d = delta[b]
        h_ = h[b]
        z_ = z[b]
        n_ = n[b]
        dz_ = da[b, width : 2 * width]
        da_n = da[b, 2 * width :]
        dn_ = dn[b]
        for i in range(len(d)):
            d[i] += g[i]
            write = one - z_[i]
            dz_[i] = d[i] * (h_[i] - n_[i]) * z_[i] * write
            dn_[i] = d[i] * write * (one - n_[i] * n_[i])
            d[i] *= z_[i]
        # Not in the loop above, which writes another column of da.
        for i in range(len(d)):
            da_n[i] = dn_[i]


# It writes one of the columns of da: the compiler would assume that several overlap.
@compiled
def _reset_before_backward(r, h, s, delta, da):
    """Write δr; add s ⊙ r to δ."""
    rows, width = delta.shape
    one = delta.dtype.type(1)
    for b in range(rows):
        d = delta[b]
        h_ = h[b]
        r_ = r[b]
        s_ = s[b]
        dr_ = da[b, :width]
        for i in range(len(d)):
            dr_[i] = s_[i] * h_[i] * r_[i] * (one - r_[i])
            d[i] += s_[i] * r_[i]


@compiled
def _reset_after_backward(r, m, dn, dm, da):
    """Write δr and δm."""
    rows, width = m.shape
    one = m.dtype.type(1)
    for b in range(rows):
        r_ = r[b]
        m_ = m[b]
        dn_ = dn[b]
        dm_ = dm[b]
        dr_ = da[b, :width]
        for i in range(len(dm_)):
            dm_[i] = dn_[i] * r_[i]
            dr_[i] = dm_[i] * m_[i] * (one - r_[i])


@dataclass(frozen=True)
class Scan(Sweep):
    """Weights W_h (columns r, z, n) and b_h (1, H), which reset=before does not read.

    `projected` has the columns of r, z and n; with reset=before the bias of the state's product is
    part of it.
    """

    kernels = _forward, _backward
    writes = 5
    reset_before: bool = False
