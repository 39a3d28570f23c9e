"""The noise distribution is a power of the smoothed token counts."""

import pytest
import torch

from lmzoo.blocks.noise_distribution import NoiseDistribution
from tests.tiny import assert_equal_double

COUNTS = torch.tensor([0, 9, 99, 399])


def counted(exponent: float) -> NoiseDistribution:
    noise = NoiseDistribution(len(COUNTS), exponent)
    tokens = torch.repeat_interleave(torch.arange(len(COUNTS)), COUNTS)
    noise.update(torch.cat([tokens, tokens]), torch.arange(2 * len(tokens)) < len(tokens))
    return noise


@pytest.mark.parametrize("exponent", [0.0, 0.75, 1.0])
def test_q_is_proportional_to_a_power_of_the_counts(exponent):
    noise = counted(exponent)
    assert noise.counts.equal(COUNTS)
    weights = (1 + COUNTS).double() ** exponent
    like = torch.zeros((), dtype=torch.float64)
    assert_equal_double(noise.log_q(like).exp(), weights / weights.sum())


def test_draws_follow_q():
    noise = counted(0.75)
    count = 40_000
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tokens = noise.draw((count // 4, 2, 2))
    assert tokens.shape == (count // 4, 2, 2)
    q = noise.log_q(torch.zeros(())).exp()
    frequencies = torch.bincount(tokens.flatten(), minlength=len(COUNTS))
    assert ((frequencies - count * q).abs() < 5 * (count * q * (1 - q)).sqrt()).all()
