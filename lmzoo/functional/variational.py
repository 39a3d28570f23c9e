r"""Densities, divergences and bounds of latent-variable models.

    log N(z; μ, β^{-2})  = Σ_e [ log β − ½ log 2π − ½ β² (z − μ)² ]
    KL(N(μ, β^{-2}) ‖ N(μ_0, β_0^{-2}))
                         = Σ_e [ log β − log β_0 + ½ β_0² (β^{-2} + (μ − μ_0)²) − ½ ]
    KL(q ‖ p)            = Σ_e Σ_k q_ek (log q_ek − log p_ek)

    log w_s = log P(x | z_s) + log p(z_s) − log q(z_s | x),   z_s ~ q(· | x)
    bound_S = log( 1/S Σ_s w_s )

β is the inverse of the standard deviation. In expectation bound_1 is the ELBO, bound_S does not
decrease with S, and no bound exceeds log P(x).

Kingma & Welling 2014 (arXiv:1312.6114), appendix B; Burda, Grosse & Salakhutdinov 2016
(arXiv:1509.00519).
"""

import math

from jaxtyping import Float
from torch import Tensor

from lmzoo.types import SequenceVectors

Channels = Float[Tensor, "E"]
"""One number for each channel."""

ACTIVE = 0.01
"""Variance of a posterior mean over sequences above which a unit is active."""


def gaussian_log_density(
    z: Float[Tensor, "*S E"],
    mean: Float[Tensor, "*M E"],
    log_beta: Channels,
) -> Float[Tensor, "*S"]:
    """Return log N(z; μ, β^{-2}), summed over channels."""
    scaled = log_beta.exp() * (z - mean)
    constant = log_beta - 0.5 * math.log(2 * math.pi)
    by_channel = constant - 0.5 * scaled.square()
    return by_channel.sum(-1)


def gaussian_kl(
    mean: Float[Tensor, "*B E"],
    log_beta: Channels,
    prior_mean: Channels,
    prior_log_beta: Channels,
) -> Float[Tensor, "*B E"]:
    """Return the KL divergence of each channel; it is zero only between equal Gaussians."""
    log_ratio = 2 * (prior_log_beta - log_beta)
    distance = mean - prior_mean
    shift = (prior_log_beta.exp() * distance).square()
    # expm1(x) − x, not exp(x) − 1 − x: the terms nearly cancel for similar Gaussians.
    return 0.5 * (log_ratio.expm1() - log_ratio + shift)


def categorical_kl(
    log_q: Float[Tensor, "*B E K"], log_p: Float[Tensor, "*P E K"]
) -> Float[Tensor, "*B E"]:
    """Return the KL divergence of each of E categorical variables."""
    terms = log_q.exp() * (log_q - log_p)
    return terms.sum(-1)


def posterior_facts(
    kl: Float[Tensor, "B"],
    mean: SequenceVectors,
    std: Tensor,
) -> dict[str, float]:
    """Return KL in nats per sequence, active units, and means of the spread of μ and of σ.

    A unit is active if its μ varies over the B sequences, with a variance above 0.01.
    """
    # A collapsed posterior has the same mean for every sequence.
    active = mean.var(0, correction=0) > ACTIVE
    spread = mean.std(0, correction=0)
    return {
        "KL": kl.mean().item(),
        "active units": float(active.sum()),
        "spread of posterior means": spread.mean().item(),
        "posterior standard deviation": std.mean().item(),
    }


def importance_bound(
    log_weights: Float[Tensor, "S B"],
) -> Float[Tensor, "B"]:
    """Return bound_S, the log of the mean weight over S samples."""
    samples = len(log_weights)
    return log_weights.logsumexp(0) - math.log(samples)
