r"""Clipping by the global norm, g ← min(1, θ/‖g‖) g, of a run alone and of pack members.

Clipping of each number, g_i ← min(max(g_i, −θ), θ), of a run alone; `packed/test_trainer.py` has
that of pack members.
"""

import dataclasses

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.data.corpus import Corpus
from lmzoo.kernels import dispatch
from lmzoo.train.packed.trainer import PackedTrainer
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit

SMALL = Recipe(batch=16)
BELOW, ABOVE = 0.05, 1e3
"""A threshold below the norm of every gradient in these tests, and one above."""


def new_training(corpus: Corpus, clip: float | None, value: float | None = None) -> Training:
    config = zoo.config("DLM46", width=4, emission={"components": 3})
    recipe = dataclasses.replace(SMALL, clip=clip, clip_value=value)
    return Training(zoo.build(config, corpus.task), recipe, seed=0)


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


def packed_gradients(corpus: Corpus, clips: list[float | None], gradient: Tensor) -> Tensor:
    """Return the clipped gradient of each member's first step: m = (1 − β₁) g of the optimiser."""
    trainer = PackedTrainer([new_training(corpus, clip) for clip in clips])
    trainer.stacked.gradients.copy_(gradient.expand(len(clips), -1))
    trainer._update([1e-3] * len(clips))
    groups = trainer.stacked.optimiser.param_groups
    states = (trainer.stacked.optimiser.state[group["params"][0]] for group in groups)
    return torch.stack([state["exp_avg"] for state in states]) / (1 - groups[0]["betas"][0])


@pytest.fixture(params=["kernel", "torch"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are updated by the Adam kernel, or by torch's optimiser."""
    if request.param == "torch":
        monkeypatch.setattr(dispatch, "DTYPES", frozenset())


def assert_same_direction(actual: Tensor, expected: Tensor) -> None:
    """Assert that the cosine is 1, up to float32 rounding."""
    cosine = torch.cosine_similarity(actual.double(), expected.double(), dim=0)
    assert cosine.item() == pytest.approx(1, abs=1e-10)


@pytest.fixture
def gradient(corpus: Corpus) -> Tensor:
    """A gradient of norm about 10 with one element far larger than the others."""
    layout = PackedTrainer([new_training(corpus, None)]).stacked.layout
    noise, generator = torch.zeros(layout.length), torch.Generator().manual_seed(0)
    for part in layout.views(noise[None]).values():
        part.normal_(generator=generator)
    noise[0] *= 10
    assert noise.norm() > 1
    return noise


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


@pytest.mark.usefixtures("implementation")
def test_clipping_keeps_the_direction_of_pack_members(corpus: Corpus, gradient: Tensor) -> None:
    clips = [BELOW, 2 * BELOW]
    for row, clip in zip(packed_gradients(corpus, clips, gradient), clips, strict=True):
        assert row.norm().item() == pytest.approx(clip, rel=1e-3)
        assert_same_direction(row, gradient)


@pytest.mark.usefixtures("implementation")
def test_a_pack_member_below_its_threshold_is_not_clipped(corpus: Corpus, gradient: Tensor) -> None:
    rows = packed_gradients(corpus, [None, BELOW, ABOVE], gradient)
    torch.testing.assert_close(rows[0], gradient, rtol=1e-6, atol=0)
    assert rows[2].equal(rows[0])
    assert not rows[1].equal(rows[0])


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


def test_clipping_by_value_is_written_into_a_config_only_where_it_is_set() -> None:
    assert "clip_value" not in to_dict(Recipe())
    assert to_dict(Recipe(clip_value=0.5))["clip_value"] == 0.5
