r"""Logarithms of sums of probabilities.

    log_mixture(p, b)_ij           = log Σ_k p_ik exp( b_kj )
    exact_log_mixture(log p, b)_ij = the same

A mixture is one matrix product of probabilities and exponentials. Each column of `b` is shifted by
its maximum, and no tensor has the shape (..., I, K, J). The product underflows where the result is
more than 87 nats below what the best k alone would give with p = 1. There `log_mixture` clamps it,
so that no gradient is infinite and no shape depends on values. `exact_log_mixture` computes these
entries, which are few in a trained model, in log space.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.vmapped import is_vmapped

MIN_SUM = 1e-30
"""Below this sum the terms that underflow are no longer negligible."""
TERMS = 1 << 22
"""Maximum number of terms in memory in log space."""


def log_mixture(
    p: Float[Tensor, "... I K"], b: Float[Tensor, "... K J"]
) -> Float[Tensor, "... I J"]:
    """Return the log of the mixtures of exp(b) with weights `p`, whose rows sum to at most one."""
    # The shift cancels in the result, and so does its gradient.
    top = b.detach().amax(-2, keepdim=True)
    mixed = p @ (b - top).exp()
    return log_floored(mixed) + top


def exact_log_mixture(
    log_p: Float[Tensor, "... I K"], b: Float[Tensor, "... K J"]
) -> Float[Tensor, "... I J"]:
    """Return the log of the mixtures of exp(b) with weights exp(log_p), for any values.

    Under `torch.vmap`, where no shape may depend on values, it is `log_mixture`.
    """
    mixed = log_mixture(log_p.exp(), b)
    if is_vmapped(mixed):
        return mixed
    top = b.detach().amax(-2, keepdim=True)
    # Sums this small may have lost their terms: they are computed again, in log space.
    shares = (mixed.detach() - top).exp()
    low = shares < MIN_SUM
    if not low.any():
        return mixed
    # Each low entry is a sum over K terms: those of its row i and of its column j.
    entries = low.nonzero()
    lead = low.shape[:-2]
    weights = log_p.expand(lead + log_p.shape[-2:])
    columns = b.mT
    columns = columns.expand(lead + columns.shape[-2:])
    size = max(1, TERMS // b.shape[-2])
    exact = []
    for part in entries.split(size):
        index = part.unbind(1)
        row = index[:-1]
        column = index[:-2] + index[-1:]
        terms = weights[row] + columns[column]
        exact.append(terms.logsumexp(-1))
    values = torch.cat(exact).to(mixed.dtype)
    return mixed.index_put(entries.unbind(1), values)


def log_floored(p: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return log p, with p clamped to the smallest normal number."""
    smallest = torch.finfo(p.dtype).tiny
    return p.clamp_min(smallest).log()


def safe_log(x: Tensor) -> Tensor:
    """Return log x, and −∞ at 0 with gradient 0 instead of NaN."""
    positive = x > 0
    # The inner `where` keeps the gradient finite, the fill gives the value.
    filled = torch.where(positive, x, 1.0)
    logs = filled.log()
    return logs.masked_fill(~positive, -torch.inf)
