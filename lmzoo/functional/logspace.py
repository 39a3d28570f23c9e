r"""Logarithms of sums of probabilities.

    log_mixture(p, b)_ij = log Σ_k p_ik exp( b_kj )

A mixture is one matrix product of probabilities and exponentials. Each column of `b` is shifted by
its maximum, and no tensor has the shape (..., I, K, J). The result is exact while it is at most 87
nats below what the best k alone would give with p = 1; there it is clamped, so that no gradient is
infinite.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def log_mixture(
    p: Float[Tensor, "... I K"], b: Float[Tensor, "... K J"]
) -> Float[Tensor, "... I J"]:
    """Return the log of the mixtures of exp(b) with weights `p`, whose rows sum to at most one."""
    # The shift cancels in the result, and so does its gradient.
    top = b.detach().amax(dim=-2, keepdim=True)
    return log_floored(p @ (b - top).exp()) + top


def log_floored(p: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return log p, with p clamped to the smallest normal number."""
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


def safe_log(x: Tensor) -> Tensor:
    """Return log x, and −∞ at 0 with gradient 0 instead of NaN."""
    positive = x > 0
    return torch.where(positive, x, 1.0).log().masked_fill(~positive, -torch.inf)
