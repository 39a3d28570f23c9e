"""Gaussian code of the flat autoencoders: KL, limits and bound."""

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
from tests.models.equivalence import small_model
from tests.tiny import CLOSE, SAME, batch, tiny

NAMES = ["linear_autoencoder", "mlp_autoencoder"]


def training_objective(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the training objective with noise from a fixed seed."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return model.train().objective(tokens, lengths)


@torch.no_grad()
def test_kl_equals_the_kl_of_two_gaussians_with_equal_variance() -> None:
    code = small_model("linear_autoencoder", gaussian=True).code
    mean = torch.randn(5, len(code.log_beta), generator=torch.Generator().manual_seed(0))
    spread = 1 / code.log_beta.exp()
    q, p = Normal(mean, spread), Normal(code.prior_mean, spread)
    assert_close(code.kl(mean), kl_divergence(q, p).sum(-1), CLOSE, "KL")
    assert_close(code.kl(code.prior_mean[None]), torch.zeros(1), SAME, "KL at the prior's mean")


@pytest.mark.parametrize("name", NAMES)
def test_objective_is_the_score_minus_the_kl(name: str) -> None:
    model = small_model(name, gaussian=True)
    tokens, lengths = batch(model.task)
    paid = log_prob(model, tokens, lengths, training=True) - training_objective(
        model, tokens, lengths
    )
    kl = model.code.kl(model.encode(tokens, lengths)).detach()
    assert (kl > 1e-3).all(), "a KL of zero shows nothing"
    assert_close(paid.sum(1), kl, CLOSE, "what a sequence pays")
    plain = small_model(name)
    assert_close(
        training_objective(plain, tokens, lengths),
        log_prob(plain, tokens, lengths),
        SAME,
        "without a prior",
    )


@pytest.mark.parametrize("name", NAMES)
def test_zero_variance_and_zero_m_give_the_plain_autoencoder(name: str) -> None:
    plain, gaussian = small_model(name), small_model(name, gaussian=True)
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
def test_objective_is_below_the_log_likelihood_under_the_prior() -> None:
    """log P(s) = log E_p[P(s | z)] from many draws; the bound is a mean over the noise of q."""
    model = small_model("linear_autoencoder", gaussian=True, width=2)
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length)
    torch.manual_seed(0)
    draws = 20_000
    noise = normal(fresh_uniforms((draws, 1, 2), model.embedding.weight))
    z = (model.code.prior_mean + model.code.std * noise).expand(-1, len(tokens), -1)
    per_draw = model.emission.log_prob(model.decode(z), tokens[:, 1:], model.embedding.weight).sum(
        -1
    )
    log_p = torch.logsumexp(per_draw, 0) - math.log(draws)
    bound = torch.stack([model.train().objective(tokens, lengths).sum(1) for _ in range(400)]).mean(
        0
    )
    assert (bound < log_p - 1e-3).all(), f"bound {bound}, log-likelihood {log_p}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("law", [*COMMON, *laws_of(objectives)], ids=lambda law: law.__name__)
def test_gaussian_autoencoder_obeys_the_laws(name: str, law: object) -> None:
    law(tiny(name, gaussian=True))  # type: ignore[operator]


def test_only_training_is_random_and_noise_std_is_refused() -> None:
    model = small_model("linear_autoencoder", gaussian=True)
    assert is_deterministic(model)
    tokens, lengths = batch(model.task)
    first, second = (log_prob(model, tokens, lengths, training=True, noise=n) for n in (0, 1))
    assert not first.equal(second)
    with pytest.raises(UserError, match=r"noise_std=0\.3: gaussian=True learns"):
        small_model("linear_autoencoder", gaussian=True, noise_std=0.3)
