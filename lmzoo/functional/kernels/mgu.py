"""The loops of `functional/scan/mgu_back.py`, in its symbols: a step's numbers in a row."""

from typing import no_type_check

from lmzoo.functional.kernels.compiled import compiled


@compiled
@no_type_check
def candidate(delta, f, c, h, carry, dc, u):
    """Fill δc, and u = δ ⊙ (c − κ h)."""
    one = delta.dtype.type(1)
    kappa = delta.dtype.type(carry)
    for i in range(len(delta)):
        dc[i] = delta[i] * f[i] * (one - c[i] * c[i])
        u[i] = delta[i] * (c[i] - kappa * h[i])


@compiled
@no_type_check
def gate(u, s, h, f, carry, df, delta):
    """Fill δf; put κ (1 − f) ⊙ δ + f ⊙ s in δ's place."""
    one = delta.dtype.type(1)
    kappa = delta.dtype.type(carry)
    for i in range(len(delta)):
        df[i] = (u[i] + s[i] * h[i]) * f[i] * (one - f[i])
        delta[i] = kappa * (one - f[i]) * delta[i] + f[i] * s[i]
