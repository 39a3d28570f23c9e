"""Gaussian VAEs with a full covariance or a second latent equal quadrature and torch."""

import torch
from numpy.polynomial.hermite_e import hermegauss
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from lmzoo.laws.support import assert_close, next_log_prob
from lmzoo.models.gaussian_vae import ChainedVAE, CovarianceVAE
from tests.models.equivalence import set_weights, small
from tests.models.exact_latents import log_prob_given_z
from tests.tiny import CLOSE, FINE, batch, every_sequence


def correlated() -> CovarianceVAE:
    model = small("gru_covariance_vae").double()
    assert isinstance(model, CovarianceVAE)
    torch.manual_seed(0)
    set_weights(model, {"z.prior_upper": torch.randn(6).double()})
    return model


def prior(model: CovarianceVAE) -> MultivariateNormal:
    """Return p(z), with U filled entry by entry."""
    width, entries = 4, iter(model.z.prior_upper)
    factor = torch.diag(model.z.prior_log_beta.exp())
    for row in range(width):
        for column in range(row + 1, width):
            factor[row, column] = next(entries)
    return MultivariateNormal(model.z.prior_mean, precision_matrix=factor.T @ factor)


@torch.no_grad()
def test_kl_and_densities_are_those_of_torch() -> None:
    model = correlated()
    h = model.encode_sentence(*batch(model.task))
    std = (-model.z.log_beta).exp().expand_as(h)
    q = MultivariateNormal(h @ model.z.to_mean, scale_tril=torch.diag_embed(std))
    assert_close(model.kl(h), kl_divergence(q, prior(model)), FINE, "KL")
    z = model.sample_posterior(h, torch.rand(3, *h.shape, dtype=torch.float64))
    log_q = Independent(Normal(q.mean, std), 1).log_prob(z)
    assert_close(model.log_ratio(z, h), prior(model).log_prob(z) - log_q, FINE, "log p / q")


@torch.no_grad()
def test_draws_of_the_prior_have_its_mean_and_covariance() -> None:
    model, count = correlated(), 200_000
    generator = torch.Generator().manual_seed(1)
    z = model.sample_prior(torch.rand(count, 4, dtype=torch.float64, generator=generator))
    p = prior(model)
    scale = p.variance.sqrt()
    white = (z - p.mean) / scale
    assert_close(white.mean(0), torch.zeros(4).double(), 5 / count**0.5, "mean")
    expected = p.covariance_matrix / scale[:, None] / scale
    assert_close(white.T @ white / count, expected, 8 / count**0.5, "correlations")
    assert (expected - torch.eye(4)).abs().max() > 0.3


NODES, COPIES = 16, 3000


def chained(**fields: object) -> ChainedVAE:
    model = small("chained_vae", width=2, code=1, norm="none", **fields)
    assert isinstance(model, ChainedVAE)
    return model


def exact_log_p(model: ChainedVAE, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return log P(s), summed over nodes of the code's noise (2) and of z (1)."""
    points, weights = (torch.tensor(a, dtype=torch.float32) for a in hermegauss(NODES))
    nodes = torch.cartesian_prod(points, points, points)
    weights = (weights / weights.sum()).log()
    log_weights = torch.cartesian_prod(weights, weights, weights).sum(1)
    c = model.z.decode(nodes[:, 2:]) + nodes[:, :2] / model.z.log_gamma.exp()
    scores = log_prob_given_z(model, tokens, lengths, torch.cat([c, nodes[:, 2:]], dim=1))
    return torch.logsumexp(log_weights[:, None] + scores, dim=0)


@torch.no_grad()
def test_likelihoods_sum_to_one_and_decoding_has_them() -> None:
    model = chained(samples=4096)
    tokens, lengths = every_sequence(model.task)
    tokens, lengths = tokens[::9], lengths[::9]
    log_p = exact_log_p(model, tokens, lengths)
    total = sum(
        next_log_prob(model, tokens[:, :t]).gather(1, tokens[:, t : t + 1])[:, 0]
        for t in range(1, model.task.length)
    )
    assert_close(total, log_p, 0.05, "log P by decoding, and exactly")


@torch.no_grad()
def test_the_decoder_reads_the_code_only() -> None:
    model = small("chained_vae")
    tokens, _ = batch(model.task)
    joint = torch.randn(2, len(tokens), 6, generator=torch.Generator().manual_seed(0))
    other = joint.clone()
    other[..., 4:] += 1
    assert_close(model.decode(tokens, other), model.decode(tokens, joint), CLOSE, "other z")
    other[..., :4] += 1
    assert (model.decode(tokens, other) - model.decode(tokens, joint)).abs().max() > 1e-3
