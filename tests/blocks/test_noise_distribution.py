"""Noise words are as frequent as what was counted, to the power that was asked."""

import pytest
import torch

from lmzoo.blocks.noise_distribution import NoiseDistribution
from tests.laws.support import assert_close
from tests.tiny import FINE

COUNTS = torch.tensor([0, 9, 99, 399])


@pytest.mark.parametrize("exponent", [0.0, 0.75, 1.0])
def test_q_is_a_power_of_the_counts(exponent: float) -> None:
    noise = NoiseDistribution(len(COUNTS), exponent)
    noise.update(torch.repeat_interleave(torch.arange(len(COUNTS)), COUNTS))
    assert noise.counts.equal(COUNTS)
    weights = (1 + COUNTS).double() ** exponent
    like = torch.zeros((), dtype=torch.float64)
    assert_close(noise.log_q(like).exp(), weights / weights.sum(), FINE, "q")


def test_draws_have_the_frequencies_of_q() -> None:
    noise, count = NoiseDistribution(len(COUNTS), 0.75), 40_000
    noise.update(torch.repeat_interleave(torch.arange(len(COUNTS)), COUNTS))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = noise.draw((count // 4, 2, 2))
    assert drawn.shape == (count // 4, 2, 2)
    q = noise.log_q(torch.zeros(())).exp()
    seen = torch.bincount(drawn.flatten(), minlength=len(COUNTS))
    assert ((seen - count * q).abs() < 5 * (count * q * (1 - q)).sqrt()).all()


def test_before_anything_is_counted_all_words_are_alike() -> None:
    q = NoiseDistribution(5, 1.0).log_q(torch.zeros(())).exp()
    assert_close(q, torch.full((5,), 0.2), 1e-6, "q")
