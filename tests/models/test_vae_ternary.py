"""Both estimators of the ternary VAE, against gradients by enumeration."""

import pytest
import torch
from torch import Tensor

from lmzoo.models.latent.vae import VAE
from tests.laws import COMMON
from tests.laws.support import assert_close
from tests.models.exact_latents import every_latent, ternary_parts
from tests.models.limits import row
from tests.tiny import CLOSE, batch, tiny

CHUNKS, COPIES = 25, 400


def gradients(model: VAE, value: Tensor) -> Tensor:
    """Of the encoder and of M, in one vector."""
    names = [*dict(model.encoder.named_parameters(prefix="encoder")), "z.to_logits"]
    found = torch.autograd.grad(value, [model.get_parameter(name) for name in names])
    return torch.cat([gradient.flatten() for gradient in found])


def one_sentence(model: VAE) -> tuple[Tensor, Tensor]:
    tokens, _ = batch(model.task)
    return tokens[:1], torch.tensor([model.task.length - 1])


def exact_gradient(model: VAE) -> Tensor:
    log_q, log_w = ternary_parts(model, *one_sentence(model))
    return gradients(model, (log_q.exp() * log_w).sum())


def estimates(model: VAE) -> Tensor:
    """The gradient of the mean score of many copies, chunk by chunk."""
    tokens, lengths = one_sentence(model)
    tokens, lengths = tokens.expand(COPIES, -1), lengths.expand(COPIES)
    torch.manual_seed(0)
    model.train()
    return torch.stack(
        [gradients(model, model.log_prob(tokens, lengths).sum() / COPIES) for _ in range(CHUNKS)]
    )


def test_the_score_function_estimator_is_unbiased() -> None:
    model = row("gru_ternary_vae", width=2, estimator="score")
    exact, found = exact_gradient(model), estimates(model)
    error = found.std(0) / CHUNKS**0.5
    assert ((found.mean(0) - exact).abs() <= 6 * error + CLOSE).all()
    # The KL's gradient alone, which is what the published code follows, lies further off.
    h = model.encode_sentence(*one_sentence(model))
    assert ((gradients(model, -model.kl(h).sum()) - exact).abs() > 6 * error + CLOSE).any()


def test_the_straight_through_estimator_points_the_right_way() -> None:
    """Biased, but nearer to the gradient than the KL alone is."""
    model = row("gru_ternary_vae", width=2, estimator="gumbel")
    exact, found = exact_gradient(model), estimates(model).mean(0)
    kl = gradients(model, -model.kl(model.encode_sentence(*one_sentence(model))).sum())
    assert (found - exact).norm() < 0.85 * (kl - exact).norm()


@pytest.mark.parametrize("law", COMMON, ids=lambda law: law.__name__)
def test_the_score_function_obeys_the_laws(law: object) -> None:
    law(tiny("gru_ternary_vae", estimator="score"))  # type: ignore[operator]


@pytest.mark.parametrize("estimator", ["score", "gumbel"])
@pytest.mark.parametrize("training", [False, True])
def test_draws_are_ternary_and_nothing_is_added_to_the_score(
    estimator: str, *, training: bool
) -> None:
    model = row("gru_ternary_vae", estimator=estimator).train(training)
    tokens, lengths = batch(model.task)
    h = model.encode_sentence(tokens, lengths)
    z = model.sample_posterior(h, torch.rand(7, len(h), *model.noise_shape))
    assert set(z.flatten().tolist()) == {-1.0, 0.0, 1.0}
    pair = z[:2]
    told = model.reconstruction(tokens, lengths, pair, h)
    assert_close(told.detach(), model.decode(tokens, pair).detach(), CLOSE, "what is told")


@torch.no_grad()
def test_the_kl_is_its_sum_over_all_latents() -> None:
    model = row("gru_ternary_vae", width=3)
    tokens, lengths = batch(model.task)
    h = model.encode_sentence(tokens, lengths)
    z = every_latent(3)[:, None].expand(-1, len(h), -1)
    log_q = model.log_prob_of(model.log_q(h), z)
    assert_close(log_q.exp().sum(0), torch.ones(len(h)), CLOSE, "q over all latents")
    expected = -(log_q.exp() * model.log_ratio(z, h)).sum(0)
    assert_close(model.kl(h), expected, CLOSE, "KL")
    assert (model.kl(h) > 0).all()


@torch.no_grad()
def test_draws_follow_q_and_p() -> None:
    model, count = row("gru_ternary_vae", width=2), 20_000
    tokens, lengths = one_sentence(model)
    h, error = model.encode_sentence(tokens, lengths), 5 * (0.25 / count) ** 0.5
    torch.manual_seed(0)
    u = torch.rand(count, 1, *model.noise_shape)
    for drawn, expected in (
        (model.sample_posterior(h, u)[:, 0], model.log_q(h)[0].exp()),
        (model.sample_prior(u[:, 0]), model.log_p().exp()),
    ):
        for value, p in zip((-1.0, 0.0, 1.0), expected.T, strict=True):
            assert_close((drawn == value).float().mean(0), p, error, f"frequency of {value}")
