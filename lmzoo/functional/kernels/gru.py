"""The loops of `functional/scan/gru_back.py`, in its symbols: rows are sequences."""

from typing import no_type_check

from lmzoo.functional.kernels.compiled import compiled


@compiled
@no_type_check
def blend(gates, h, keeps, delta, da):
    """Fill δz and δn; put what δ gives to h straight in its place."""
    rows, width = delta.shape
    one = delta.dtype.type(1)
    for j in range(rows):
        d, state, z, n = delta[j], h[j], gates[j, width:], gates[j, 2 * width :]
        dz, dn = da[j, width:], da[j, 2 * width :]
        if keeps:
            for k in range(width):
                dz[k] = d[k] * (state[k] - n[k]) * z[k] * (one - z[k])
                dn[k] = d[k] * (one - z[k]) * (one - n[k] * n[k])
                d[k] *= z[k]
        else:
            for k in range(width):
                dz[k] = d[k] * (n[k] - state[k]) * z[k] * (one - z[k])
                dn[k] = d[k] * z[k] * (one - n[k] * n[k])
                d[k] *= one - z[k]


@compiled
@no_type_check
def reset_before(gates, h, s, delta, da):
    """Fill δr; add s ⊙ r to δ."""
    rows, width = delta.shape
    one = delta.dtype.type(1)
    for j in range(rows):
        d, state, r, through, dr = delta[j], h[j], gates[j, :width], s[j], da[j, :width]
        for k in range(width):
            dr[k] = through[k] * state[k] * r[k] * (one - r[k])
            d[k] += through[k] * r[k]


@compiled
@no_type_check
def reset_after(gates, m, da, dm):
    """Fill δr and δm."""
    rows, width = m.shape
    one = m.dtype.type(1)
    for j in range(rows):
        r, inner, dn = gates[j, :width], m[j], da[j, 2 * width :]
        dr, out = da[j, :width], dm[j]
        for k in range(width):
            dr[k] = dn[k] * inner[k] * r[k] * (one - r[k])
            out[k] = dn[k] * r[k]
