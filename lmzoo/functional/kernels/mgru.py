"""The loop of `functional/scan/mgru_back.py`, in its symbols: a step's numbers in a row."""

from typing import no_type_check

from lmzoo.functional.kernels.compiled import compiled


@compiled
@no_type_check
def step(f, g, h, carry, write, away, sigmoid, dg, df, delta):
    """Fill δg and δf; put δ ⊙ (κ − λ f) in δ's place."""
    one = delta.dtype.type(1)
    kappa, omega = delta.dtype.type(carry), delta.dtype.type(write)
    lam = delta.dtype.type(away)
    for i in range(len(delta)):
        slope = g[i] * (one - g[i]) if sigmoid else one - g[i] * g[i]
        dg[i] = delta[i] * f[i] * slope
        df[i] = delta[i] * (omega * g[i] - lam * h[i]) * f[i] * (one - f[i])
        delta[i] *= kappa - lam * f[i]
