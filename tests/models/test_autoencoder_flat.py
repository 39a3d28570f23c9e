"""Flat autoencoders: affine, of low rank, seeing everything, noisy only where asked."""

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
from tests.models.limits import row
from tests.tiny import CLOSE, batch, tiny

NAMES = ["linear_autoencoder", "mlp_autoencoder"]


def jacobian(model: LanguageModel, x: Tensor) -> Tensor:
    """Of all outputs before the emission with regard to all embeddings."""
    return torch.autograd.functional.jacobian(lambda x: model.decoder(model.encoder(x)), x)


def test_the_linear_one_is_affine_of_rank_at_most_its_width() -> None:
    model = row("linear_autoencoder", width=3)
    inputs = torch.randn(2, 3 * (model.task.length - 1), generator=torch.Generator().manual_seed(0))
    one, other = (jacobian(model, x) for x in inputs)
    assert_close(one, other, 0, "slope at two points")
    assert one.shape == (12, 12)
    assert torch.linalg.matrix_rank(one) == 3


def test_the_deep_one_is_not_affine() -> None:
    model = row("mlp_autoencoder", width=3)
    inputs = torch.randn(2, 12, generator=torch.Generator().manual_seed(0))
    assert (jacobian(model, inputs[0]) - jacobian(model, inputs[1])).abs().max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_every_output_depends_on_every_token(name: str) -> None:
    model = row(name)
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
def test_without_noise_training_is_deterministic_and_with_it_not(name: str) -> None:
    for noise_std in (0.0, 0.5):
        model = row(name, noise_std=noise_std)
        tokens, lengths = batch(model.task)
        one, other = (log_prob(model, tokens, lengths, training=True, noise=n) for n in (0, 1))
        assert one.equal(other) == (noise_std == 0)
        assert is_deterministic(model)


@torch.no_grad()
def test_evaluation_averages_the_scores_over_the_shared_noise() -> None:
    model = row("linear_autoencoder", noise_std=0.5, samples=6).eval()
    tokens, lengths = batch(model.task)
    z = model.encode(tokens, lengths)
    eps = noise.normal(noise.shared_uniforms((6, 1, z.shape[1]), z))
    each = [
        model.emission.log_prob(model.decode((z + 0.5 * e)[None])[0], tokens[:, 1:], table)
        for e, table in zip(eps, [model.embedding.weight] * 6, strict=True)
    ]
    assert_close(model.score_tokens(tokens, lengths), torch.stack(each).mean(0), CLOSE, "scores")


@torch.no_grad()
@pytest.mark.parametrize("fields", [{"noise_std": 0.8}, {"gaussian": True}], ids=str)
def test_what_comes_next_is_asked_under_the_same_noise(fields: dict[str, Any]) -> None:
    """The mean of the probabilities, so that they still are a distribution."""
    model = row("linear_autoencoder", samples=6, **fields).eval()
    prefix = batch(model.task)[0][:, :3]
    z = model.encode(prefix, torch.full((len(prefix),), 3))
    eps = noise.normal(noise.shared_uniforms((6, 1, z.shape[1]), z))
    spread = fields.get("noise_std") or model.code.log_beta.neg().exp()
    each = [
        model.emission.dense(model.decode((z + spread * e)[None])[0, :, 2], model.embedding.weight)
        for e in eps
    ]
    found = model.next_log_prob(prefix)
    assert_close(found.exp(), torch.stack(each).exp().mean(0), CLOSE, "probabilities")
    assert (found - each[0]).abs().max() > 1e-3
    law_next_is_a_distribution(model)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("law", COMMON, ids=lambda law: law.__name__)
def test_denoising_obeys_the_laws(name: str, law: object) -> None:
    law(tiny(name, noise_std=0.3))  # type: ignore[operator]


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_those_it_was_made_for(name: str) -> None:
    model = row(name)
    law_next_is_a_distribution(model)
    tokens = torch.ones(1, model.task.length + 1, dtype=torch.int64)
    with pytest.raises(UserError, match="was made for 5 tokens and got 6"):
        log_prob(model, tokens, torch.tensor([6]))
    with pytest.raises(UserError, match="cannot add one to 5"):
        model.next_log_prob(tokens[:, :5])
