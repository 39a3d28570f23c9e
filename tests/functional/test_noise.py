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
from lmzoo.laws.tiny import assert_close
from tests.tiny import assert_equal_double, assert_equal_single

LIKE = torch.zeros(())


def test_shared_noise_is_repeatable_and_does_not_change_the_global_generator():
    before = torch.get_rng_state()
    first = noise.shared_uniforms((4, 3), LIKE)
    assert before.equal(torch.get_rng_state())
    torch.rand(7)
    with torch.device("meta"):  # a model on a GPU is called in a scope of its device
        assert first.equal(noise.shared_uniforms((4, 3), LIKE))


def test_each_coordinate_has_one_draw_in_every_stratum():
    strata = (noise.shared_uniforms((16, 5, 3), LIKE) * 16).floor()
    expected = torch.arange(16.0)[:, None, None].expand(-1, 5, 3)
    assert strata.sort(dim=0).values.equal(expected)
    assert not strata[:, 0].equal(strata[:, 1])


@pytest.mark.parametrize("draws", [1, 2, 8])
def test_every_single_draw_is_uniform(draws):
    """The first draw has the right mean and mean square over many coordinates."""
    count = 40_000
    first = noise.shared_uniforms((draws, count), LIKE)[0]
    assert_close(first.mean(), torch.tensor(1 / 2), 5 * (1 / 12 / count) ** 0.5, "mean")
    assert_close(
        first.square().mean(), torch.tensor(1 / 3), 5 * (4 / 45 / count) ** 0.5, "mean square"
    )


def test_transforms_are_finite_and_have_the_right_distribution():
    for extreme in (noise._clamp(torch.zeros(1)), noise._clamp(torch.ones(1))):
        assert noise.normal(extreme).isfinite().all()
        assert noise.gumbel(extreme).isfinite().all()
    logits = torch.tensor([0.5, -1.0, 0.2])
    u = noise.shared_uniforms((40_000, 3), LIKE)
    frequencies = (logits + noise.gumbel(u)).argmax(-1).bincount() / len(u)
    assert_close(frequencies, logits.softmax(0), 5 * (0.25 / len(u)) ** 0.5, "Gumbel argmax")
    z = noise.normal(u)
    assert_close(z.mean(0), torch.zeros(3), 5 / len(u) ** 0.5, "mean")
    assert_close(z.square().mean(0), torch.ones(3), 5 * (2 / len(u)) ** 0.5, "variance")


def test_gaussian_density_and_kl_equal_torch():
    torch.manual_seed(0)
    mean, z = torch.randn(2, 5, 3, dtype=torch.float64)
    mean_0, log_beta, log_beta_0 = torch.randn(3, 3, dtype=torch.float64)
    q = Normal(mean, (-log_beta).exp())
    p = Normal(mean_0, (-log_beta_0).exp())
    assert_equal_double(gaussian_kl(mean, log_beta, mean_0, log_beta_0), kl_divergence(q, p))
    density = gaussian_log_density(z, mean, log_beta)
    assert_equal_double(density, q.log_prob(z).sum(-1))


def test_categorical_kl_equals_torch_and_is_zero_only_between_equal_distributions():
    torch.manual_seed(0)
    log_q, log_p = torch.randn(2, 4, 3, 3).log_softmax(-1)
    expected = kl_divergence(Categorical(logits=log_q), Categorical(logits=log_p))
    assert_equal_single(categorical_kl(log_q, log_p), expected)
    assert (categorical_kl(log_q, log_p) > 0).all()
    assert (categorical_kl(log_q, log_q) == 0).all()
