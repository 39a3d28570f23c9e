r"""Densities of diagonal Gaussians by inverse spread, and divergences in closed form.

    log N(z; μ, β^{-2})  = Σ_e [ log β − ½ log 2π − ½ β² (z − μ)² ]
    KL(N(μ, β^{-2}) ‖ N(μ_0, β_0^{-2}))
                         = Σ_e [ log β − log β_0 + ½ β_0² (β^{-2} + (μ − μ_0)²) − ½ ]
    KL(q ‖ p)            = Σ_e Σ_k q_ek (log q_ek − log p_ek)

Kingma & Welling 2014 (arXiv:1312.6114), appendix B; zoo.md 2.4.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def gaussian_log_density(
    z: Float[Tensor, "*S E"], mean: Float[Tensor, "*M E"], log_beta: Float[Tensor, "E"]
) -> Float[Tensor, "*S"]:
    """Log N(z; μ, β^{-2}), summed over channels."""
    square = (log_beta.exp() * (z - mean)).square()
    return (log_beta - 0.5 * math.log(2 * math.pi) - 0.5 * square).sum(-1)


def gaussian_kl(
    mean: Float[Tensor, "*B E"],
    log_beta: Float[Tensor, "E"],
    prior_mean: Float[Tensor, "E"],
    prior_log_beta: Float[Tensor, "E"],
) -> Float[Tensor, "*B E"]:
    """KL of each channel; never negative, zero where both are the same Gaussian."""
    wider = 2 * (prior_log_beta - log_beta)
    shift = (prior_log_beta.exp() * (mean - prior_mean)).square()
    # expm1(x) − x, not exp(x) − 1 − x: near equality the terms nearly cancel.
    return 0.5 * (torch.expm1(wider) - wider + shift)


def categorical_kl(
    log_q: Float[Tensor, "*B E K"], log_p: Float[Tensor, "*P E K"]
) -> Float[Tensor, "*B E"]:
    """KL of each of E categorical variables."""
    return (log_q.exp() * (log_q - log_p)).sum(-1)
