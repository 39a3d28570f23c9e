"""The latent of the Bernoulli VAE is a vector of bits."""

import pytest
import torch

from tests.laws.support import assert_close
from tests.models.equivalence import set_weights, small
from tests.models.exact_latents import all_vectors
from tests.tiny import CLOSE, batch, tiny

NAME = "gru_bernoulli_vae"


@torch.no_grad()
def test_posterior_and_prior_are_logistic_functions() -> None:
    model = small(NAME)
    h = model.encode_sentence(*batch(model.task))
    assert_close(model.log_q(h)[..., 1].exp(), (h @ model.z.to_logits).sigmoid(), CLOSE, "q")
    assert_close(model.log_p()[..., 1].exp(), model.z.prior_logits[:, 0].sigmoid(), CLOSE, "p")


@torch.no_grad()
def test_kl_equals_enumeration_over_all_codes_and_the_formula() -> None:
    model = small(NAME, width=3)
    h = model.encode_sentence(*batch(model.task))
    z = all_vectors(model)
    assert len(z) == 8
    z = z[:, None].expand(-1, len(h), -1)
    log_q = model.log_prob_of(model.log_q(h), z)
    assert_close(log_q.exp().sum(0), torch.ones(len(h)), CLOSE, "q over all codes")
    assert_close(model.kl(h), -(log_q.exp() * model.log_ratio(z, h)).sum(0), CLOSE, "KL")
    q, p = (h @ model.z.to_logits).sigmoid(), model.z.prior_logits[:, 0].sigmoid()
    formula = q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()
    assert_close(model.kl(h), formula.sum(1), CLOSE, "KL")


@pytest.mark.parametrize("estimator", ["score", "gumbel"])
@pytest.mark.parametrize("training", [False, True])
def test_samples_are_bits(estimator: str, *, training: bool) -> None:
    model = small(NAME, estimator=estimator).train(training)
    h = model.encode_sentence(*batch(model.task))
    z = model.sample_posterior(h, torch.rand(7, len(h), *model.noise_shape))
    assert set(z.flatten().tolist()) == {0.0, 1.0}


@torch.no_grad()
def test_a_certain_code_costs_its_length_in_bits() -> None:
    """Under a uniform prior a code without doubt costs one bit per channel."""
    model = tiny(NAME)
    set_weights(model, {"z.prior_logits": 0.0})
    weights = model.z.to_logits
    h = 1e4 * torch.linalg.inv(weights + torch.eye(len(weights)))[:1] + 50
    bits = model.kl(h) / torch.tensor(2.0).log()
    assert_close(bits, torch.full((1,), 4.0), 1e-3, "bits of the code")
