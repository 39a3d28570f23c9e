"""The prior with a full covariance equals torch's multivariate normal distribution."""

import torch
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from lmzoo.models.gaussian_vae import CovarianceVAE
from tests.laws.support import assert_close
from tests.models.equivalence import set_weights, small
from tests.tiny import FINE, batch


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
