"""Autoencoders: what codes read, noise, and the Gaussian code."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel
from lmzoo.functional.noise import normal, shared_uniforms
from lmzoo.laws.density import law_next_is_a_distribution
from lmzoo.laws.support import assert_close, is_deterministic, log_prob
from tests.models.equivalence import small
from tests.tiny import CLOSE, SAME, batch

NAMES = ["gru_autoencoder", "rnn_autoencoder"]


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_code_depends_on_all_tokens_and_not_on_pads(name: str) -> None:
    model = small(name)
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length - 1)
    code = model.encode(tokens, lengths)
    assert code.shape == (len(tokens), model.config.width)
    for t in range(model.task.length):
        changed = tokens.clone()
        changed[:, t] = (tokens[:, t] + 1) % model.task.vocab
        moved = (model.encode(changed, lengths) - code).abs().amax(1)
        assert (moved > 1e-4).all() if t < model.task.length - 1 else (moved == 0).all()


FLAT = ["linear_autoencoder", "mlp_autoencoder"]


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


@pytest.mark.parametrize("name", FLAT)
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


def test_only_training_is_random_and_noise_std_is_refused() -> None:
    model = small("linear_autoencoder", gaussian=True)
    assert is_deterministic(model)
    tokens, lengths = batch(model.task)
    first, second = (log_prob(model, tokens, lengths, training=True, noise=n) for n in (0, 1))
    assert not first.equal(second)
    with pytest.raises(UserError, match=r"noise_std=0\.3: gaussian=True learns"):
        small("linear_autoencoder", gaussian=True, noise_std=0.3)
