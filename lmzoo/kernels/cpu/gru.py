"""The gated recurrent unit's sweeps, `functional/scan/gru.py` in its symbols, a member at a time.

Arrays are (T, P, B, H). What a step reads and writes stays in the cache from one loop or product
to the next. Inputs reach the gates by `into`, the bias in m by `inside`. A step's three
pre-activations, or their gradients, stand side by side for one product. A loop writes one of the
three, or reads any: more than that the compiler takes for an overlap, and does not vectorise.
"""

from typing import no_type_check

import numpy as np

from lmzoo.kernels.cpu.blas import back, outer, product
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import sigmoid, tanh
from lmzoo.kernels.cpu.projection import project_gradients, project_inputs


@compiled
@no_type_check
def forward(into, inside, gate, hidden, start, before, keeps, states, r, z, n, m):
    """Fill states, r, z, n and m (r ⊙ h if before); False at a word that has no row."""
    steps, members, rows, width = m.shape
    a = np.empty((rows, 3 * width), m.dtype)
    rz, last = a[:, : 2 * width], a[:, 2 * width :]
    for p in range(members):
        for t in range(steps):
            h = states[t - 1, p] if t else start[p]
            if not project_inputs(into, t, p, a):
                return False
            product(h, gate[p], rz, 1)
            _open(a, r[t, p], z[t, p])
            if before:
                _gated(r[t, p].ravel(), h.ravel(), m[t, p].ravel())
                product(m[t, p], hidden[p], last, 1)
            else:
                project_inputs(inside, t, p, m[t, p])
                product(h, hidden[p], m[t, p], 1)
            _close(a, h, before, keeps, r[t, p], z[t, p], n[t, p], m[t, p], states[t, p])
    return True


@compiled
@no_type_check
def _open(a, r, z):
    """Fill r and z."""
    rows, width = r.shape
    for b in range(rows):
        of_r, of_z, r_, z_ = a[b, :width], a[b, width : 2 * width], r[b], z[b]
        for i in range(len(r_)):
            r_[i] = sigmoid(of_r[i])
            z_[i] = sigmoid(of_z[i])


@compiled
@no_type_check
def _gated(r, h, m):
    """Fill r ⊙ h."""
    for i in range(len(m)):
        m[i] = r[i] * h[i]


@compiled
@no_type_check
def _close(a, h, before, keeps, r, z, n, m, new):
    """Fill n and h'."""
    rows, width = new.shape
    one = new.dtype.type(1)
    for b in range(rows):
        of_n, h_, r_, z_ = a[b, 2 * width :], h[b], r[b], z[b]
        n_, m_, new_ = n[b], m[b], new[b]
        for i in range(len(new_)):
            n_[i] = tanh(of_n[i] if before else of_n[i] + r_[i] * m_[i])
            kept = z_[i] if keeps else one - z_[i]
            written = one - z_[i] if keeps else z_[i]
            new_[i] = kept * h_[i] + written * n_[i]


@compiled
@no_type_check
def reverse(
    upstream, into, inside, gate, hidden, start, before, keeps, states, r, z, n, m,
    of_gate, of_hidden, delta,
):  # fmt: skip
    """Fill delta (P, B, H), the gradient of the start, and add to the others."""
    steps, members, rows, width = m.shape
    da, room = np.empty((rows, 3 * width), m.dtype), np.empty((2, rows, width), m.dtype)
    drz, dn, s = da[:, : 2 * width], room[0], room[1]
    delta[:] = 0
    for p in range(members):
        d = delta[p]
        for t in range(steps - 1, -1, -1):
            h = states[t - 1, p] if t else start[p]
            _blend(upstream[t, p], h, z[t, p], n[t, p], keeps, d, da, dn)
            if before:
                back(dn, hidden[p], s, 0)
                _reset_before(r[t, p], h, s, d, da)
                outer(m[t, p], dn, of_hidden[p])
            else:
                _reset_after(r[t, p], m[t, p], dn, s, da)
                back(s, hidden[p], d, 1)
                outer(h, s, of_hidden[p])
                project_gradients(inside, t, p, s)
            back(drz, gate[p], d, 1)
            outer(h, drz, of_gate[p])
            project_gradients(into, t, p, da)


@compiled
@no_type_check
def _blend(upstream, h, z, n, keeps, delta, da, dn):
    """Fill δz and δn, the latter twice; put what δ gives to h straight in its place."""
    rows, width = delta.shape
    one = delta.dtype.type(1)
    for b in range(rows):
        g, d, h_, z_, n_ = upstream[b], delta[b], h[b], z[b], n[b]
        dz_, last, dn_ = da[b, width : 2 * width], da[b, 2 * width :], dn[b]
        for i in range(len(d)):
            d[i] += g[i]
            kept = z_[i] if keeps else one - z_[i]
            written = one - z_[i] if keeps else z_[i]
            apart = h_[i] - n_[i] if keeps else n_[i] - h_[i]
            dz_[i] = d[i] * apart * kept * written
            dn_[i] = d[i] * written * (one - n_[i] * n_[i])
            d[i] *= kept
        for i in range(len(d)):
            last[i] = dn_[i]


@compiled
@no_type_check
def _reset_before(r, h, s, delta, da):
    """Fill δr; add s ⊙ r to δ."""
    rows, width = delta.shape
    one = delta.dtype.type(1)
    for b in range(rows):
        d, h_, r_, s_, dr_ = delta[b], h[b], r[b], s[b], da[b, :width]
        for i in range(len(d)):
            dr_[i] = s_[i] * h_[i] * r_[i] * (one - r_[i])
            d[i] += s_[i] * r_[i]


@compiled
@no_type_check
def _reset_after(r, m, dn, dm, da):
    """Fill δr and δm."""
    rows, width = m.shape
    one = m.dtype.type(1)
    for b in range(rows):
        r_, m_, dn_, dm_, dr_ = r[b], m[b], dn[b], dm[b], da[b, :width]
        for i in range(len(dm_)):
            dm_[i] = dn_[i] * r_[i]
            dr_[i] = dm_[i] * m_[i] * (one - r_[i])
