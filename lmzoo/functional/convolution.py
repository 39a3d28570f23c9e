"""Short causal convolutions over time, of each channel by itself.

    y_t = Σ_j w_j z_{t+j}        z = (past, x), j = 0 .. W − 1

It is a sum of W shifted products, each of which passes over all numbers.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def convolve(
    x: Float[Tensor, "B T C"],
    past: Float[Tensor, "B P C"],
    taps: Float[Tensor, "C W"],
    bias: Float[Tensor, "C"] | None = None,
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B P C"]]:
    """Convolve each channel over time, causally, after P = W − 1 inputs; return the last P, too."""
    steps = x.shape[1]
    window = torch.cat([past, x], 1)
    # Not a product with a Toeplitz matrix: taps are few, and channels do not mix.
    shifted = [window[:, j : j + steps] * tap for j, tap in enumerate(taps.unbind(-1))]
    mixed = torch.stack(shifted).sum(0)
    if bias is not None:
        mixed = mixed + bias
    rest = window[:, steps:]
    return mixed, rest
