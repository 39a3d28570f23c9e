"""Closed forms against torch.distributions and against Monte Carlo means."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal, kl_divergence

from lmzoo.functional.variational import (
    categorical_kl,
    gaussian_kl,
    gaussian_log_density,
    importance_bound,
)
from lmzoo.laws.support import assert_close
from tests.tiny import CLOSE, FINE

E = 3


def gaussians(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return μ, log β, μ_0, log β_0."""
    torch.manual_seed(seed)
    mean, *vectors = torch.randn(5, E), *torch.randn(3, E)
    return mean.double(), *(vector.double() for vector in vectors)


def test_gaussian_kl_equals_torch() -> None:
    mean, log_beta, mean_0, log_beta_0 = gaussians()
    q, p = Normal(mean, (-log_beta).exp()), Normal(mean_0, (-log_beta_0).exp())
    assert_close(gaussian_kl(mean, log_beta, mean_0, log_beta_0), kl_divergence(q, p), FINE, "KL")


def test_gaussian_density_equals_torch() -> None:
    mean, log_beta, z, _ = gaussians()
    expected = Normal(mean, (-log_beta).exp()).log_prob(z).sum(-1)
    assert_close(gaussian_log_density(z.expand_as(mean), mean, log_beta), expected, FINE, "density")


@pytest.mark.parametrize("changed", range(4))
def test_gaussian_kl_is_zero_only_between_equal_gaussians(changed: int) -> None:
    mean, log_beta, _, _ = gaussians()
    mean = mean[0]
    parts = [mean, log_beta, mean, log_beta]
    assert (gaussian_kl(*parts) == 0).all()
    for step in (-0.5, -1e-3, 1e-3, 0.5):
        others = [part + step * (i == changed) for i, part in enumerate(parts)]
        assert (gaussian_kl(*others) > 0).all()


def test_categorical_kl_equals_torch_and_is_zero_only_between_equal_distributions() -> None:
    torch.manual_seed(0)
    log_q, log_p = torch.randn(2, 4, E, 3).log_softmax(-1)
    expected = kl_divergence(Categorical(logits=log_q), Categorical(logits=log_p))
    assert_close(categorical_kl(log_q, log_p), expected, CLOSE, "KL")
    assert (categorical_kl(log_q, log_p) > 0).all()
    assert (categorical_kl(log_q, log_q) == 0).all()


def test_the_importance_bound_is_the_log_of_the_mean_weight() -> None:
    weights = torch.tensor([[1.0, 2.0], [3.0, 8.0]])
    assert_close(importance_bound(weights.log()), torch.tensor([2.0, 5.0]).log(), CLOSE, "bound")
