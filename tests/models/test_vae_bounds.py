"""ELBO ≤ importance-weighted bound ≤ log P, with log P computed by summing over the latent."""

import pytest
import torch
from torch import Tensor

from lmzoo.laws import density
from lmzoo.models.gaussian_vae import GaussianVAE
from lmzoo.models.vae import VAE
from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.equivalence import set_weights, small
from tests.models.exact_latents import discrete_parts, gaussian_elbo, gaussian_log_p
from tests.tiny import CLOSE, batch, every_sequence

NAMES = ["gru_vae", "rnn_vae", "gru_covariance_vae", "gru_ternary_vae", "gru_bernoulli_vae"]
TWO = {"width": 2, "norm": "none"}
"""Two channels and no normaliser: the quadrature needs smooth functions."""

COPIES = 3000
"""Copies of one sequence in a batch; each has an independent draw."""


def vae(name: str, **fields: object) -> VAE:
    """Return a small VAE whose prior has correlated channels, or bits that are often on."""
    model = small(name, **fields)
    if name == "gru_covariance_vae":
        set_weights(model, {"z.prior_upper": 0.8})
    if name == "gru_bernoulli_vae":
        set_weights(model, {"z.prior_logits": 2.0})
    return model


def exact(model: VAE, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ELBO and log P."""
    if isinstance(model, GaussianVAE):
        return gaussian_elbo(model, tokens, lengths), gaussian_log_p(model, tokens, lengths)
    log_q, log_w = discrete_parts(model, tokens, lengths)
    return (log_q.exp() * log_w).sum(0), torch.logsumexp(log_q + log_w, dim=0)


def copies(model: VAE) -> tuple[Tensor, Tensor]:
    """Return many copies of one sequence that is shorter than the padded length."""
    tokens, _ = batch(model.task)
    return tokens[:1].expand(COPIES, -1), torch.full((COPIES,), model.task.length - 1)


def mean_and_error(draws: Tensor) -> tuple[Tensor, Tensor]:
    return draws.mean(), draws.std() / len(draws) ** 0.5


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_exact_likelihood_sums_to_one_and_exceeds_the_elbo(name: str) -> None:
    model = vae(name, **TWO)
    elbo, log_p = exact(model, *every_sequence(model.task))
    assert_close(log_p.exp().sum(), torch.ones(()), CLOSE, "total probability")
    assert (elbo < log_p).all()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_total_score_is_the_elbo_in_training_and_evaluation(name: str) -> None:
    model = vae(name, samples=4096, **TWO)
    tokens, lengths = copies(model)
    elbo = exact(model, tokens[:1], lengths[:1])[0][0]
    actual, error = mean_and_error(log_prob(model, tokens, lengths, training=True).sum(1))
    assert_close(actual, elbo, 5 * error.item(), "mean training score")
    actual = log_prob(model, tokens[:1], lengths[:1]).sum()
    assert_close(actual, elbo, 5 * error.item(), "evaluation score")


@torch.no_grad()
def test_two_sample_bound_equals_enumeration() -> None:
    """Compare `iw_bound` with the exact expectation of log (w + w') / 2 over pairs."""
    model = small("gru_ternary_vae", **TWO)
    tokens, lengths = copies(model)
    log_q, log_w = (part[:, 0] for part in discrete_parts(model, tokens[:1], lengths[:1]))
    pairs = (log_q[:, None] + log_q).exp()
    bound_2 = (pairs * (torch.logaddexp(log_w[:, None], log_w) - torch.tensor(2.0).log())).sum()
    assert (log_q.exp() * log_w).sum() < bound_2 < torch.logsumexp(log_q + log_w, dim=0)
    torch.manual_seed(1)
    actual, error = mean_and_error(model.iw_bound(tokens, lengths, 2))
    assert_close(actual, bound_2, 5 * error.item(), "bound of two draws")


@pytest.mark.parametrize("name", NAMES)
def test_next_token_distribution_is_a_mixture_over_the_prior(name: str) -> None:
    """The product over a sequence is the mean over prior draws of P(s | z)."""
    model = vae(name, samples=4096, **TWO)
    density.law_next_is_a_distribution(vae(name, **TWO))
    tokens, lengths = every_sequence(model.task)
    tokens, lengths = tokens[::9], lengths[::9]
    total = sum(
        next_log_prob(model, tokens[:, :t]).gather(1, tokens[:, t : t + 1])[:, 0]
        for t in range(1, model.task.length)
    )
    with torch.no_grad():
        log_p = exact(model, tokens, lengths)[1]
    assert_close(total, log_p, 0.05, "log P by decoding, and exactly")
