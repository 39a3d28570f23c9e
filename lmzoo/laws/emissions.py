"""Laws of an emission: functions that take one in float64 and raise AssertionError."""

import sys
from typing import Any

import torch
from torch import Tensor

from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm
from lmzoo.functional.token_scores import of_tokens
from lmzoo.laws.tiny import FINE, assert_close, laws_of, seeded

WIDTH = 4
VOCAB = 7


def build_emission(config: Any, norm: Norm = Norm.RMS, seed: int = 0) -> Emission:
    """Build an emission in float64, with weights drawn from this seed."""
    parsed = EMISSIONS.parse(config)
    with seeded(seed):
        emission = EMISSIONS.build(parsed, WIDTH, norm)
        emission.own_tokens(VOCAB)
    return emission.double()


def contexts(batch: int = 3, steps: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Return context vectors (B, T, E), targets (B, T) and an embedding table (V, E)."""
    generator = torch.Generator().manual_seed(1)
    options: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
    y = torch.randn(batch, steps, WIDTH, **options)
    targets = torch.randint(VOCAB, (batch, steps), generator=generator)
    table = torch.randn(VOCAB, WIDTH, **options)
    return y, targets, table


def law_dense_probabilities_sum_to_one(emission: Emission):
    """Σ_v P(v | y) = 1 for every context."""
    y, _, table = contexts()
    dense = emission.dense(y, table)
    total = dense.exp().sum(-1)
    expected = torch.ones_like(total)
    assert_close(total, expected, FINE, "total probability")


def law_scores_are_the_dense_values_of_the_targets(emission: Emission):
    """`log_prob` is `dense` at the target."""
    y, targets, table = contexts()
    scores = emission.log_prob(y, targets, table)
    expected = of_tokens(emission.dense(y, table), targets)
    assert_close(scores, expected, FINE, "scores")


def law_leading_axes_are_independent(emission: Emission):
    """Contexts from several initial states are scored as each alone."""
    y, targets, table = contexts()
    # Contexts that differ, so that a mixed-up axis shows.
    stack = torch.stack([y, y.flip(0), -y])
    scores = emission.log_prob(stack, targets, table)
    for part, own in zip(stack, scores, strict=True):
        alone = emission.log_prob(part, targets, table)
        assert_close(own, alone, FINE, "scores with a leading axis")


def law_positions_are_independent(emission: Emission):
    """A change of later contexts changes no score before them."""
    y, targets, table = contexts()
    changed = y.clone()
    changed[:, 2:] += 1
    after = emission.log_prob(changed, targets, table)
    before = emission.log_prob(y, targets, table)
    assert_close(after[:, :2], before[:, :2], 0, "scores before a change")


EMISSION_LAWS = tuple(laws_of(sys.modules[__name__]))
