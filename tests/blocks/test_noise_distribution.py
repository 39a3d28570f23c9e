"""The noise distribution is a power of the smoothed token counts."""

import torch

from lmzoo.blocks.noise_distribution import NoiseDistribution
from tests.cases import parametrize
from tests.tiny import assert_equal_double

COUNTS = torch.tensor([0, 9, 99, 399])


def counted(exponent):
    noise = NoiseDistribution(len(COUNTS), exponent)
    tokens = torch.arange(len(COUNTS)).repeat_interleave(COUNTS)
    # The second half of the tokens is not scored.
    both = torch.cat([tokens, tokens])
    scored = torch.arange(len(both)) < len(tokens)
    noise.update(both, scored)
    return noise


@parametrize("exponent", [0.0, 0.75, 1.0])
def test_q_is_proportional_to_a_power_of_the_counts(exponent):
    noise = counted(exponent)
    assert noise.counts.equal(COUNTS)
    # Smoothed by one, so that each token may be drawn.
    weights = (1 + COUNTS).double() ** exponent
    like = torch.zeros(()).double()
    actual = noise.log_q(like).exp()
    expected = weights / weights.sum()
    assert_equal_double(actual, expected)


def test_draws_follow_q():
    noise = counted(0.75)
    shape = (10_000, 2, 2)
    tokens = noise.draw(shape)
    assert tokens.shape == shape
    count = tokens.numel()
    q = noise.log_q(torch.zeros(())).exp()
    flat = tokens.flatten()
    frequencies = torch.bincount(flat, minlength=len(COUNTS))
    gap = (frequencies - count * q).abs()
    variance = count * q * (1 - q)
    assert (gap < 5 * variance.sqrt()).all()
