"""Noise is repeatable and has its distribution; closed forms of densities and divergences."""

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from lmzoo.functional import noise
from lmzoo.functional.variational import (
    categorical_kl,
    gaussian_kl,
    gaussian_log_density,
)
from tests.tiny import assert_equal_double, assert_equal_single

LIKE = torch.zeros(())
COUNT = 40_000


@pytest.fixture
def first() -> torch.Tensor:
    return noise.shared_uniforms((4, 3), LIKE)


def test_shared_noise_does_not_change_the_global_generator():
    before = torch.get_rng_state()
    noise.shared_uniforms((4, 3), LIKE)
    assert before.equal(torch.get_rng_state())


def test_shared_noise_does_not_depend_on_the_global_generator(first):
    # Whatever was drawn before.
    torch.rand(7)
    assert first.equal(noise.shared_uniforms((4, 3), LIKE))


def test_shared_noise_does_not_depend_on_the_scope_of_a_device(first):
    """A model on a GPU is called in a scope of its device."""
    with torch.device("meta"):
        assert first.equal(noise.shared_uniforms((4, 3), LIKE))
        assert first.equal(noise.shared_uniforms((4, 3), LIKE))


def test_each_coordinate_has_one_draw_in_every_stratum():
    strata = (noise.shared_uniforms((16, 5, 3), LIKE) * 16).floor()
    expected = torch.arange(16.0)[:, None, None].expand(-1, 5, 3)
    assert strata.sort(dim=0).values.equal(expected)
    assert not strata[:, 0].equal(strata[:, 1])


@pytest.mark.parametrize("draws", [1, 2, 8])
def assert_mean(actual: torch.Tensor, expected: torch.Tensor | float, variance: float):
    """Assert that a mean of many draws of this variance is within five standard errors."""
    error = (variance / COUNT) ** 0.5
    assert ((actual - expected).abs() <= 5 * error).all()


@pytest.mark.parametrize("draws", [1, 2, 8])
def test_every_single_draw_is_uniform(draws):
    """The first draw has the right mean and mean square over many coordinates."""
    first = noise.shared_uniforms((draws, COUNT), LIKE)[0]
    assert_mean(first.mean(), 1 / 2, variance=1 / 12)
    assert_mean(first.square().mean(), 1 / 3, variance=4 / 45)


@pytest.mark.parametrize("transform", [noise.normal, noise.gumbel])
def test_transforms_of_extremes_are_finite(transform):
    assert transform(noise._clamp(torch.zeros(1))).isfinite().all()
    assert transform(noise._clamp(torch.ones(1))).isfinite().all()


def test_the_argmax_of_gumbel_noise_has_the_distribution_of_the_logits():
    logits = torch.tensor([0.5, -1.0, 0.2])
    u = noise.shared_uniforms((COUNT, 3), LIKE)
    drawn = (logits + noise.gumbel(u)).argmax(-1)
    assert_mean(drawn.bincount() / COUNT, logits.softmax(0), variance=0.25)


def test_normal_noise_has_mean_zero_and_variance_one():
    z = noise.normal(noise.shared_uniforms((COUNT, 3), LIKE))
    assert_mean(z.mean(0), 0.0, variance=1)
    assert_mean(z.square().mean(0), 1.0, variance=2)


def test_gaussian_density_and_kl_equal_torch():
    torch.manual_seed(0)
    mean, z = torch.randn(2, 5, 3, dtype=torch.float64)
    mean_0, log_beta, log_beta_0 = torch.randn(3, 3, dtype=torch.float64)
    q = Normal(mean, (-log_beta).exp())
    p = Normal(mean_0, (-log_beta_0).exp())
    kl = gaussian_kl(mean, log_beta, mean_0, log_beta_0)
    density = gaussian_log_density(z, mean, log_beta)
    assert_equal_double(kl, kl_divergence(q, p))
    assert_equal_double(density, q.log_prob(z).sum(-1))


def test_categorical_kl_equals_torch_and_is_zero_only_between_equal_distributions():
    torch.manual_seed(0)
    log_q, log_p = torch.randn(2, 4, 3, 3).log_softmax(-1)
    q = Categorical(logits=log_q)
    p = Categorical(logits=log_p)
    kl = categorical_kl(log_q, log_p)
    assert_equal_single(kl, kl_divergence(q, p))
    assert (kl > 0).all()
    assert not categorical_kl(log_q, log_q).any()
