r"""Clipping by the global norm, g ← min(1, θ/‖g‖) g, and of each number, of a run alone.

Of pack members: `test_pack_optimiser.py` and `test_pack_trainer.py`.
"""

import dataclasses

import pytest
import torch
from torch import Tensor

from lmzoo.data.corpus import Corpus
from lmzoo.train.trainer import Training, fit
from tests.train.members import RECIPE, member

BELOW, ABOVE = 0.05, 1e3
"""A threshold below the norm of every gradient in these tests, and one above."""


def new_training(corpus: Corpus, clip: float | None, value: float | None = None) -> Training:
    return member(corpus, recipe=dataclasses.replace(RECIPE, clip=clip, clip_value=value))


def step_gradients(corpus: Corpus, clip: float | None, value: float | None = None) -> list[Tensor]:
    """Return the gradient that the optimiser receives in each step of an epoch."""
    training, recorded = new_training(corpus, clip, value), []
    assert training.optimiser is not None
    step = training.optimiser.step

    def record_and_step() -> None:
        gradients = [p.grad for p in training.model.parameters() if p.grad is not None]
        recorded.append(torch.cat([gradient.flatten() for gradient in gradients]))
        step()

    training.optimiser.step = record_and_step  # type: ignore[method-assign]
    list(fit(training, corpus, 1))
    return recorded


def assert_same_direction(actual: Tensor, expected: Tensor) -> None:
    """Assert that the cosine is 1, up to float32 rounding."""
    cosine = torch.cosine_similarity(actual.double(), expected.double(), dim=0)
    assert cosine.item() == pytest.approx(1, abs=1e-10)


def test_clipping_keeps_the_direction(corpus: Corpus) -> None:
    before, after = step_gradients(corpus, None)[0], step_gradients(corpus, BELOW)[0]
    assert before.norm() > 2 * BELOW
    assert after.norm().item() == pytest.approx(BELOW, rel=1e-3)
    assert_same_direction(after, before)


def test_a_threshold_that_is_never_reached_changes_no_bit(corpus: Corpus) -> None:
    unclipped, clipped = step_gradients(corpus, None), step_gradients(corpus, ABOVE)
    assert len(unclipped) > 2
    assert max(gradient.norm() for gradient in unclipped) < ABOVE
    assert all(a.equal(b) for a, b in zip(unclipped, clipped, strict=True))


def test_each_number_is_clipped_by_its_value_before_the_norm(corpus: Corpus) -> None:
    """In the first step, because the later ones start from other weights."""
    before, most = step_gradients(corpus, None)[0], 0.01
    after = step_gradients(corpus, None, most)[0]
    assert (before.abs() > most).any()
    assert (before.abs() < most).any()
    assert after.equal(before.clamp(-most, most))
    both = step_gradients(corpus, BELOW, most)[0]
    assert both.norm().item() == pytest.approx(BELOW, rel=1e-3)
    assert_same_direction(both, after)
