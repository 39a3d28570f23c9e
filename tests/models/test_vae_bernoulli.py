"""The latent of the Bernoulli VAE is a vector of bits."""

import torch

from tests.laws.support import assert_close
from tests.models.equivalence import small
from tests.tiny import CLOSE, batch

NAME = "gru_bernoulli_vae"


@torch.no_grad()
def test_posterior_and_prior_are_logistic_functions() -> None:
    model = small(NAME)
    h = model.encode_sentence(*batch(model.task))
    assert_close(model.log_q(h)[..., 1].exp(), (h @ model.z.to_logits).sigmoid(), CLOSE, "q")
    assert_close(model.log_p()[..., 1].exp(), model.z.prior_logits[:, 0].sigmoid(), CLOSE, "p")


@torch.no_grad()
def test_kl_equals_the_formula() -> None:
    model = small(NAME, width=3)
    h = model.encode_sentence(*batch(model.task))
    q, p = (h @ model.z.to_logits).sigmoid(), model.z.prior_logits[:, 0].sigmoid()
    formula = q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()
    assert_close(model.kl(h), formula.sum(1), CLOSE, "KL")
