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
from tests.cases import parametrize
from tests.tiny import assert_equal_double, assert_equal_single

LIKE = torch.zeros(())
COUNT = 40_000


SHAPE = (4, 3)


@pytest.fixture
def first():
    return noise.shared_uniforms(SHAPE, LIKE)


def test_shared_noise_does_not_change_the_global_generator():
    before = torch.get_rng_state()
    noise.shared_uniforms(SHAPE, LIKE)
    after = torch.get_rng_state()
    assert before.equal(after)


def test_shared_noise_does_not_depend_on_the_global_generator(first):
    # Whatever was drawn before.
    torch.rand(7)
    second = noise.shared_uniforms(SHAPE, LIKE)
    assert first.equal(second)


def test_shared_noise_does_not_depend_on_the_scope_of_a_device(first):
    """A model on a GPU is called in a scope of its device."""
    with torch.device("meta"):
        second = noise.shared_uniforms(SHAPE, LIKE)
        assert first.equal(second)


def test_each_coordinate_has_one_draw_in_every_stratum():
    uniforms = noise.shared_uniforms((16, 5, 3), LIKE)
    # Sixteen draws, sixteen strata.
    strata = torch.floor(16 * uniforms)
    in_order = strata.sort(dim=0).values
    expected = torch.arange(16.0)[:, None, None]
    assert in_order.equal(expected.expand(-1, 5, 3))
    first = strata[:, 0]
    assert not first.equal(strata[:, 1])


def assert_mean(actual, expected, variance):
    """Assert that a mean of many draws of this variance is within five standard errors."""
    error = (variance / COUNT) ** 0.5
    gap = (actual - expected).abs()
    assert (gap <= 5 * error).all()


@parametrize("draws", [1, 2, 8])
def test_every_single_draw_is_uniform(draws):
    """The first draw has the right mean and mean square over many coordinates."""
    first = noise.shared_uniforms((draws, COUNT), LIKE)[0]
    squares = first.square()
    assert_mean(first.mean(), 1 / 2, variance=1 / 12)
    assert_mean(squares.mean(), 1 / 3, variance=4 / 45)


@parametrize("transform", [noise.normal, noise.gumbel])
@parametrize("extreme", [0.0, 1.0])
def test_transforms_of_extremes_are_finite(transform, extreme):
    # A uniform number may be 0, whose logarithm is infinite.
    inside = noise._clamp(torch.tensor([extreme]))
    assert transform(inside).isfinite().all()


def test_the_argmax_of_gumbel_noise_has_the_distribution_of_the_logits():
    logits = torch.tensor([0.5, -1.0, 0.2])
    u = noise.shared_uniforms((COUNT, 3), LIKE)
    drawn = (logits + noise.gumbel(u)).argmax(-1)
    shares = drawn.bincount() / COUNT
    # The variance of a share is a quarter at most.
    assert_mean(shares, logits.softmax(0), variance=0.25)


def test_normal_noise_has_mean_zero_and_variance_one():
    u = noise.shared_uniforms((COUNT, 3), LIKE)
    z = noise.normal(u)
    squares = z.square()
    assert_mean(z.mean(0), 0.0, variance=1)
    assert_mean(squares.mean(0), 1.0, variance=2)


def test_gaussian_density_and_kl_equal_torch():
    mean, z = torch.randn(2, 5, 3).double()
    mean_0, log_beta, log_beta_0 = torch.randn(3, 3).double()
    q = Normal(mean, torch.exp(-log_beta))
    p = Normal(mean_0, torch.exp(-log_beta_0))
    kl = gaussian_kl(mean, log_beta, mean_0, log_beta_0)
    density = gaussian_log_density(z, mean, log_beta)
    assert_equal_double(kl, kl_divergence(q, p))
    expected = q.log_prob(z).sum(-1)
    assert_equal_double(density, expected)


def test_categorical_kl_equals_torch_and_is_zero_only_between_equal_distributions():
    logits = torch.randn(2, 4, 3, 3)
    log_q, log_p = logits.log_softmax(-1)
    q = Categorical(logits=log_q)
    p = Categorical(logits=log_p)
    kl = categorical_kl(log_q, log_p)
    nothing = categorical_kl(log_q, log_q)
    assert_equal_single(kl, kl_divergence(q, p))
    assert (kl > 0).all()
    assert not nothing.any()
