"""The Gaussian code of the flat autoencoders: its KL, its limits, and that it pays a bound."""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from lmzoo.contract import LanguageModel
from lmzoo.errors import UserError
from lmzoo.functional.noise import fresh_uniforms, normal
from tests.laws import COMMON, laws_of, objectives
from tests.laws.support import assert_close, is_deterministic, log_prob
from tests.models.limits import row
from tests.tiny import CLOSE, SAME, batch, tiny

NAMES = ["linear_autoencoder", "mlp_autoencoder"]


def raised(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """The objective of one training pass, its noise drawn from one fixed stream."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return model.train().objective(tokens, lengths)


@torch.no_grad()
def test_the_kl_is_that_of_two_gaussians_of_one_spread() -> None:
    code = row("linear_autoencoder", gaussian=True).code
    mean = torch.randn(5, len(code.log_beta), generator=torch.Generator().manual_seed(0))
    spread = 1 / code.log_beta.exp()
    q, p = Normal(mean, spread), Normal(code.prior_mean, spread)
    assert_close(code.kl(mean), kl_divergence(q, p).sum(-1), CLOSE, "KL")
    assert_close(code.kl(code.prior_mean[None]), torch.zeros(1), SAME, "KL at the prior's mean")


@pytest.mark.parametrize("name", NAMES)
def test_training_raises_the_scores_less_the_kl(name: str) -> None:
    model = row(name, gaussian=True)
    tokens, lengths = batch(model.task)
    paid = log_prob(model, tokens, lengths, training=True) - raised(model, tokens, lengths)
    kl = model.code.kl(model.encode(tokens, lengths)).detach()
    assert (kl > 1e-3).all(), "a KL of zero shows nothing"
    assert_close(paid.sum(1), kl, CLOSE, "what a sequence pays")
    plain = row(name)
    assert_close(
        raised(plain, tokens, lengths), log_prob(plain, tokens, lengths), SAME, "without a prior"
    )


@pytest.mark.parametrize("name", NAMES)
def test_without_spread_and_without_m_it_is_the_plain_autoencoder(name: str) -> None:
    plain, gaussian = row(name), row(name, gaussian=True)
    missing = gaussian.load_state_dict(plain.state_dict(), strict=False)
    assert set(missing.missing_keys) == {"code.to_mean", "code.prior_mean", "code.log_beta"}
    tokens, lengths = batch(plain.task)
    assert (
        log_prob(gaussian, tokens, lengths) - log_prob(plain, tokens, lengths)
    ).abs().max() > 0.01
    with torch.no_grad():
        gaussian.code.to_mean.zero_()
        gaussian.code.log_beta.fill_(20)
    assert_close(
        log_prob(gaussian, tokens, lengths), log_prob(plain, tokens, lengths), CLOSE, "scores"
    )


@torch.no_grad()
def test_the_objective_is_below_the_log_likelihood_that_the_prior_gives() -> None:
    """log P(s) = log E_p[P(s | z)], by many draws; the bound is its mean over q's noise."""
    model = row("linear_autoencoder", gaussian=True, width=2)
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length)
    torch.manual_seed(0)
    draws = 20_000
    noise = normal(fresh_uniforms((draws, 1, 2), model.embedding.weight))
    z = (model.code.prior_mean + model.code.spread * noise).expand(-1, len(tokens), -1)
    each = model.emission.log_prob(model.decode(z), tokens[:, 1:], model.embedding.weight).sum(-1)
    log_p = torch.logsumexp(each, 0) - math.log(draws)
    bound = torch.stack([model.train().objective(tokens, lengths).sum(1) for _ in range(400)]).mean(
        0
    )
    assert (bound < log_p - 1e-3).all(), f"bound {bound}, log-likelihood {log_p}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("law", [*COMMON, *laws_of(objectives)], ids=lambda law: law.__name__)
def test_a_gaussian_code_obeys_the_laws(name: str, law: object) -> None:
    law(tiny(name, gaussian=True))  # type: ignore[operator]


def test_it_draws_in_training_only_and_takes_no_other_noise() -> None:
    model = row("linear_autoencoder", gaussian=True)
    assert is_deterministic(model)
    tokens, lengths = batch(model.task)
    one, other = (log_prob(model, tokens, lengths, training=True, noise=n) for n in (0, 1))
    assert not one.equal(other)
    with pytest.raises(UserError, match=r"noise_std=0\.3: gaussian=True learns"):
        row("linear_autoencoder", gaussian=True, noise_std=0.3)
