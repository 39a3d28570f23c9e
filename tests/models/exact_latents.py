"""Exact log P and ELBO of VAEs with a tiny latent, computed by summing over z."""

import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor

from lmzoo.functional.token_scores import scored_mask
from lmzoo.models.vae import VAE

NODES = 32
"""Quadrature nodes per channel. Without a normaliser, 24 give the same log P to 1e-3."""


def log_prob_given_z(model: VAE, tokens: Tensor, lengths: Tensor, z: Tensor) -> Tensor:
    """Return log P(s | z) of every z (S, E), shape (S, B)."""
    scores = model.decode(tokens, z[:, None].expand(-1, len(tokens), -1))
    return (scores * scored_mask(tokens, lengths)[:, 1:]).sum(-1)


def quadrature(nodes: int = NODES) -> tuple[Tensor, Tensor]:
    """Return nodes ε and log-weights of a product rule for two standard normal channels."""
    points, weights = (torch.tensor(a, dtype=torch.float32) for a in hermegauss(nodes))
    weights = weights / weights.sum()
    return torch.cartesian_prod(points, points), torch.cartesian_prod(weights, weights).log().sum(1)


def gaussian_log_p(model: VAE, tokens: Tensor, lengths: Tensor, nodes: int = NODES) -> Tensor:
    """Return log P(s) by quadrature over the prior of two channels."""
    eps, log_weights = quadrature(nodes)
    if hasattr(model.z, "factor"):  # z = μ_0 + L ε with the covariance L Lᵀ
        factor = model.z.factor()
        spread = torch.linalg.cholesky(torch.linalg.inv(factor.T @ factor))
        z = model.z.prior_mean + eps @ spread.T
    else:
        z = model.z.prior_mean + eps / model.z.prior_log_beta.exp()
    return torch.logsumexp(
        log_weights[:, None] + log_prob_given_z(model, tokens, lengths, z), dim=0
    )


def gaussian_elbo(model: VAE, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the ELBO by quadrature over each sequence's q."""
    eps, log_weights = quadrature()
    h = model.encode_sentence(tokens, lengths)
    z = (h @ model.z.to_mean)[None] + (eps / model.z.log_beta.exp())[:, None]
    scores = (model.decode(tokens, z) * scored_mask(tokens, lengths)[:, 1:]).sum(-1)
    return (log_weights.exp()[:, None] * scores).sum(0) - model.kl(h)


def all_vectors(model: VAE) -> Tensor:
    """Return all K^E values of a discrete latent, (K^E, E)."""
    width = model.config.width
    return torch.cartesian_prod(*[torch.tensor(model.values)] * width).reshape(-1, width)


def discrete_parts(model: VAE, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return log q(z | s) and log w(z) = log P(s, z) − log q(z | s) of all z, (K^E, B)."""
    z, h = all_vectors(model), model.encode_sentence(tokens, lengths)
    per_z = z[:, None].expand(-1, len(tokens), -1)
    log_q = model.log_prob_of(model.log_q(h), per_z)
    return log_q, log_prob_given_z(model, tokens, lengths, z) + model.log_ratio(per_z, h)
