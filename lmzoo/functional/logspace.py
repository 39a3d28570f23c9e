r"""Mixtures whose parts are known by their logarithms.

    log_mixture(p, b)_ij = log Σ_k p_ik exp( b_kj )

One matrix product of probabilities and exponentials, each column of `b` shifted by its
largest entry, so nothing of shape (..., I, K, J) exists. Exact while the result is
within exp(-87) of what the best k alone would give with p = 1; floored there, so that
no gradient is infinite.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def log_mixture(
    p: Float[Tensor, "... I K"], b: Float[Tensor, "... K J"]
) -> Float[Tensor, "... I J"]:
    """Log of the mixtures `p` (rows sum to at most one) of the values exp(b)."""
    # The shift cancels in the result, so its gradient does too: leave it out.
    top = b.detach().amax(dim=-2, keepdim=True)
    return log_floored(p @ (b - top).exp()) + top


def log_floored(p: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Log p, with zero read as the smallest normal number."""
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()
