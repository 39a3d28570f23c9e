"""Flat autoencoders: rank, dependence on all tokens, and noise."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.errors import UserError
from lmzoo.functional import noise
from tests.laws import COMMON
from tests.laws.density import law_causal, law_next_is_a_distribution
from tests.laws.support import assert_close, is_deterministic, log_prob
from tests.models.equivalence import small_model
from tests.tiny import CLOSE, batch, tiny

NAMES = ["linear_autoencoder", "mlp_autoencoder"]


def jacobian(model: LanguageModel, x: Tensor) -> Tensor:
    """Return the Jacobian of all outputs before the emission with respect to all embeddings."""
    return torch.autograd.functional.jacobian(lambda x: model.decoder(model.encoder(x)), x)


def test_linear_autoencoder_is_affine_with_rank_at_most_its_width() -> None:
    model = small_model("linear_autoencoder", width=3)
    inputs = torch.randn(2, 3 * (model.task.length - 1), generator=torch.Generator().manual_seed(0))
    first, second = (jacobian(model, x) for x in inputs)
    assert_close(first, second, 0, "slope at two points")
    assert first.shape == (12, 12)
    assert torch.linalg.matrix_rank(first) == 3


def test_mlp_autoencoder_is_not_affine() -> None:
    model = small_model("mlp_autoencoder", width=3)
    inputs = torch.randn(2, 12, generator=torch.Generator().manual_seed(0))
    assert (jacobian(model, inputs[0]) - jacobian(model, inputs[1])).abs().max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_every_output_depends_on_every_token(name: str) -> None:
    model = small_model(name)
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length)
    before = model.decode(model.encode(tokens, lengths)[None])[0]
    for t in range(1, model.task.length):
        changed = tokens.clone()
        changed[:, t] = (tokens[:, t] + 1) % model.task.vocab
        moved = (model.decode(model.encode(changed, lengths)[None])[0] - before).abs().amax(-1)
        assert (moved.amax(0) > 1e-5).all(), f"token {t} does not reach every position"
    with pytest.raises(AssertionError, match="probability of all tokens at 1"):
        law_causal(model)


@pytest.mark.parametrize("name", NAMES)
def test_training_is_deterministic_only_without_noise(name: str) -> None:
    for noise_std in (0.0, 0.5):
        model = small_model(name, noise_std=noise_std)
        tokens, lengths = batch(model.task)
        first, second = (log_prob(model, tokens, lengths, training=True, noise=n) for n in (0, 1))
        assert first.equal(second) == (noise_std == 0)
        assert is_deterministic(model)


@torch.no_grad()
def test_evaluation_averages_scores_over_shared_noise() -> None:
    model = small_model("linear_autoencoder", noise_std=0.5, samples=6).eval()
    tokens, lengths = batch(model.task)
    z = model.encode(tokens, lengths)
    eps = noise.normal(noise.shared_uniforms((6, 1, z.shape[1]), z))
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
    model = small_model("linear_autoencoder", samples=6, **fields).eval()
    prefix = batch(model.task)[0][:, :3]
    z = model.encode(prefix, torch.full((len(prefix),), 3))
    eps = noise.normal(noise.shared_uniforms((6, 1, z.shape[1]), z))
    spread = fields.get("noise_std") or model.code.log_beta.neg().exp()
    per_draw = [
        model.emission.dense(model.decode((z + spread * e)[None])[0, :, 2], model.embedding.weight)
        for e in eps
    ]
    actual = model.next_log_prob(prefix)
    assert_close(actual.exp(), torch.stack(per_draw).exp().mean(0), CLOSE, "probabilities")
    assert (actual - per_draw[0]).abs().max() > 1e-3
    law_next_is_a_distribution(model)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("law", COMMON, ids=lambda law: law.__name__)
def test_denoising_autoencoder_obeys_the_laws(name: str, law: object) -> None:
    law(tiny(name, noise_std=0.3))  # type: ignore[operator]


@pytest.mark.parametrize("name", NAMES)
def test_sequences_longer_than_the_task_are_refused(name: str) -> None:
    model = small_model(name)
    law_next_is_a_distribution(model)
    tokens = torch.ones(1, model.task.length + 1, dtype=torch.int64)
    with pytest.raises(UserError, match="is built for 5 tokens, got 6"):
        log_prob(model, tokens, torch.tensor([6]))
    with pytest.raises(UserError, match="cannot add one to 5"):
        model.next_log_prob(tokens[:, :5])
