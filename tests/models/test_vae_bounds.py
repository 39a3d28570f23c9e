"""ELBO ≤ importance-weighted bound ≤ log P, against log P summed over the latent."""

import pytest
import torch
from torch import Tensor

from lmzoo.models.latent.vae import VAE
from tests.laws import density
from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.exact_latents import gaussian_elbo, gaussian_log_p, ternary_parts
from tests.models.limits import row
from tests.tiny import CLOSE, batch, every_sequence

NAMES = ["gru_vae", "rnn_vae", "gru_ternary_vae"]
TWO = {"width": 2, "norm": "none"}
"""Two channels, and nothing normalised: a quadrature needs functions without kinks."""

COPIES = 3000
"""Of one sequence in a batch: as many independent draws."""


def exact(model: VAE, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(ELBO, log P)."""
    if model.name == "gru_vae":
        return gaussian_elbo(model, tokens, lengths), gaussian_log_p(model, tokens, lengths)
    log_q, log_w = ternary_parts(model, tokens, lengths)
    return (log_q.exp() * log_w).sum(0), torch.logsumexp(log_q + log_w, dim=0)


def copies(model: VAE) -> tuple[Tensor, Tensor]:
    """One sequence, shorter than the batch is wide, many times."""
    tokens, _ = batch(model.task)
    return tokens[:1].expand(COPIES, -1), torch.full((COPIES,), model.task.length - 1)


def mean_and_error(draws: Tensor) -> tuple[Tensor, Tensor]:
    return draws.mean(), draws.std() / len(draws) ** 0.5


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_marginal_is_a_density_and_the_elbo_below_it(name: str) -> None:
    model = row(name, **TWO)
    elbo, log_p = exact(model, *every_sequence(model.task))
    assert_close(log_p.exp().sum(), torch.ones(()), CLOSE, "total probability")
    assert (elbo < log_p).all()


@torch.no_grad()
def test_the_quadrature_has_converged() -> None:
    model = row("gru_vae", **TWO)
    tokens, lengths = every_sequence(model.task)
    coarse = gaussian_log_p(model, tokens, lengths, nodes=24)
    assert_close(coarse, gaussian_log_p(model, tokens, lengths), 1e-3, "log P with fewer nodes")


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_bounds_are_ordered(name: str) -> None:
    model = row(name, **TWO)
    tokens, lengths = copies(model)
    elbo, log_p = (bound[0] for bound in exact(model, tokens[:1], lengths[:1]))
    torch.manual_seed(0)
    (one, slip), (four, slip_4), (many, slip_m) = (
        mean_and_error(model.iw_bound(tokens, lengths, samples)) for samples in (1, 4, 32)
    )
    assert_close(one, elbo, 5 * slip.item(), "bound of one draw, and the ELBO")
    assert one + 4 * (slip + slip_4) < four
    assert four + 4 * (slip_4 + slip_m) < many
    assert many < log_p + 4 * slip_m
    assert log_p - many < (log_p - elbo) / 2


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_scores_total_the_elbo_in_training_and_in_evaluation(name: str) -> None:
    model = row(name, samples=4096, **TWO)
    tokens, lengths = copies(model)
    elbo = exact(model, tokens[:1], lengths[:1])[0][0]
    found, error = mean_and_error(log_prob(model, tokens, lengths, training=True).sum(1))
    assert_close(found, elbo, 5 * error.item(), "mean training score")
    found = log_prob(model, tokens[:1], lengths[:1]).sum()
    assert_close(found, elbo, 5 * error.item(), "evaluation score")


@torch.no_grad()
def test_two_draws_are_a_bound_between_by_enumeration() -> None:
    """E over pairs of log (w + w') / 2, exactly; and `iw_bound` draws from that law."""
    model = row("gru_ternary_vae", **TWO)
    tokens, lengths = copies(model)
    log_q, log_w = (part[:, 0] for part in ternary_parts(model, tokens[:1], lengths[:1]))
    pairs = (log_q[:, None] + log_q).exp()
    two = (pairs * (torch.logaddexp(log_w[:, None], log_w) - torch.tensor(2.0).log())).sum()
    assert (log_q.exp() * log_w).sum() < two < torch.logsumexp(log_q + log_w, dim=0)
    torch.manual_seed(1)
    found, error = mean_and_error(model.iw_bound(tokens, lengths, 2))
    assert_close(found, two, 5 * error.item(), "bound of two draws")


@pytest.mark.parametrize("name", NAMES)
def test_the_next_token_comes_from_a_mixture_over_the_prior(name: str) -> None:
    """Normalised, and the product over a sequence is the mean over prior draws of P(s | z)."""
    model = row(name, samples=4096, **TWO)
    density.law_next_is_a_distribution(row(name, **TWO))
    tokens, lengths = every_sequence(model.task)
    tokens, lengths = tokens[::9], lengths[::9]
    total = sum(
        next_log_prob(model, tokens[:, :t]).gather(1, tokens[:, t : t + 1])[:, 0]
        for t in range(1, model.task.length)
    )
    with torch.no_grad():
        log_p = exact(model, tokens, lengths)[1]
    assert_close(total, log_p, 0.05, "log P by decoding, and exactly")
