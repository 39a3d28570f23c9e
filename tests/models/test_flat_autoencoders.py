"""Flat autoencoders: rank, dependence on all tokens, noise, and the Gaussian code."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel
from lmzoo.functional.noise import fresh_uniforms, normal, shared_uniforms
from lmzoo.laws.density import law_causal, law_next_is_a_distribution
from tests.laws.support import assert_close, is_deterministic, log_prob
from tests.models.equivalence import small
from tests.tiny import CLOSE, SAME, batch

NAMES = ["linear_autoencoder", "mlp_autoencoder"]


def jacobian(model: LanguageModel, x: Tensor) -> Tensor:
    """Return the Jacobian of all outputs before the emission with respect to all embeddings."""
    return torch.autograd.functional.jacobian(lambda x: model.decoder(model.encoder(x)), x)


def test_linear_autoencoder_is_affine_with_rank_at_most_its_width() -> None:
    model = small("linear_autoencoder", width=3)
    inputs = torch.randn(2, 3 * (model.task.length - 1), generator=torch.Generator().manual_seed(0))
    first, second = (jacobian(model, x) for x in inputs)
    assert_close(first, second, 0, "slope at two points")
    assert first.shape == (12, 12)
    assert torch.linalg.matrix_rank(first) == 3


def test_mlp_autoencoder_is_not_affine() -> None:
    model = small("mlp_autoencoder", width=3)
    inputs = torch.randn(2, 12, generator=torch.Generator().manual_seed(0))
    assert (jacobian(model, inputs[0]) - jacobian(model, inputs[1])).abs().max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_every_output_depends_on_every_token(name: str) -> None:
    model = small(name)
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length)
    before = model.decode(model.encode(tokens, lengths)[None])[0]
    for t in range(1, model.task.length):
        changed = tokens.clone()
        changed[:, t] = (tokens[:, t] + 1) % model.task.vocab
        moved = (model.decode(model.encode(changed, lengths)[None])[0] - before).abs().amax(-1)
        assert (moved.amax(0) > 1e-5).all(), f"token {t} does not reach every position"
    with pytest.raises(AssertionError, match="leak: "):
        law_causal(model)


@pytest.mark.parametrize("name", NAMES)
def test_training_is_deterministic_only_without_noise(name: str) -> None:
    for noise_std in (0.0, 0.5):
        model = small(name, noise_std=noise_std)
        tokens, lengths = batch(model.task)
        first, second = (log_prob(model, tokens, lengths, training=True, noise=n) for n in (0, 1))
        assert first.equal(second) == (noise_std == 0)
        assert is_deterministic(model)


@torch.no_grad()
def test_evaluation_averages_scores_over_shared_noise() -> None:
    model = small("linear_autoencoder", noise_std=0.5, samples=6).eval()
    tokens, lengths = batch(model.task)
    z = model.encode(tokens, lengths)
    eps = normal(shared_uniforms((6, 1, z.shape[1]), z))
    per_draw = [
        model.emission.log_prob(model.decode((z + 0.5 * e)[None])[0], tokens[:, 1:], table)
        for e, table in zip(eps, [model.embedding.weight] * 6, strict=True)
    ]
    assert_close(
        model.score_tokens(tokens, lengths), torch.stack(per_draw).mean(0), CLOSE, "scores"
    )


@torch.no_grad()
@pytest.mark.parametrize("fields", [{"noise_std": 0.8}, {"gaussian": True}], ids=str)
def test_next_token_probabilities_are_averaged_over_shared_noise(fields: dict[str, Any]) -> None:
    """The mean of the probabilities is a distribution; the mean of their logarithms is not."""
    model = small("linear_autoencoder", samples=6, **fields).eval()
    prefix = batch(model.task)[0][:, :3]
    z = model.encode(prefix, torch.full((len(prefix),), 3))
    eps = normal(shared_uniforms((6, 1, z.shape[1]), z))
    spread = fields.get("noise_std") or model.code.log_beta.neg().exp()
    per_draw = [
        model.emission.dense(model.decode((z + spread * e)[None])[0, :, 2], model.embedding.weight)
        for e in eps
    ]
    actual = model.next_log_prob(prefix)
    assert_close(actual.exp(), torch.stack(per_draw).exp().mean(0), CLOSE, "probabilities")
    assert (actual - per_draw[0]).abs().max() > 1e-3
    law_next_is_a_distribution(model)


def training_objective(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the training objective with noise from a fixed seed."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return model.train().objective(tokens, lengths)


@torch.no_grad()
def test_kl_equals_the_kl_of_two_gaussians_with_equal_variance() -> None:
    code = small("linear_autoencoder", gaussian=True).code
    mean = torch.randn(5, len(code.log_beta), generator=torch.Generator().manual_seed(0))
    spread = 1 / code.log_beta.exp()
    q, p = Normal(mean, spread), Normal(code.prior_mean, spread)
    assert_close(code.kl(mean), kl_divergence(q, p).sum(-1), CLOSE, "KL")
    assert_close(code.kl(code.prior_mean[None]), torch.zeros(1), SAME, "KL at the prior's mean")


@pytest.mark.parametrize("name", NAMES)
def test_objective_is_the_score_minus_the_kl(name: str) -> None:
    model = small(name, gaussian=True)
    tokens, lengths = batch(model.task)
    paid = log_prob(model, tokens, lengths, training=True) - training_objective(
        model, tokens, lengths
    )
    kl = model.code.kl(model.encode(tokens, lengths)).detach()
    assert (kl > 1e-3).all(), "a KL of zero shows nothing"
    assert_close(paid.sum(1), kl, CLOSE, "what a sequence pays")
    plain = small(name)
    assert_close(
        training_objective(plain, tokens, lengths),
        log_prob(plain, tokens, lengths),
        SAME,
        "without a prior",
    )


@pytest.mark.parametrize("name", NAMES)
def test_zero_variance_and_zero_m_give_the_plain_autoencoder(name: str) -> None:
    plain, gaussian = small(name), small(name, gaussian=True)
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
    model = small("linear_autoencoder", gaussian=True, width=2)
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


def test_only_training_is_random_and_noise_std_is_refused() -> None:
    model = small("linear_autoencoder", gaussian=True)
    assert is_deterministic(model)
    tokens, lengths = batch(model.task)
    first, second = (log_prob(model, tokens, lengths, training=True, noise=n) for n in (0, 1))
    assert not first.equal(second)
    with pytest.raises(UserError, match=r"noise_std=0\.3: gaussian=True learns"):
        small("linear_autoencoder", gaussian=True, noise_std=0.3)
