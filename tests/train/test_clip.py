r"""Clipping by the global norm, g ← min(1, θ/‖g‖) g: alone and for members side by side."""

import dataclasses

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.data.corpus import Corpus
from lmzoo.kernels import dispatch as processor
from lmzoo.train.packed.trainer import PackedTrainer
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit

SMALL = Recipe(batch=16)
BELOW, ABOVE = 0.05, 1e3
"""A threshold that every gradient here exceeds, and one that none does."""


def training(corpus: Corpus, clip: float | None) -> Training:
    config = zoo.config("DLM46", width=4, emission={"components": 3})
    return Training(zoo.build(config, corpus.task), dataclasses.replace(SMALL, clip=clip), seed=0)


def gradients(corpus: Corpus, clip: float | None) -> list[Tensor]:
    """What the optimiser is given at each step of an epoch."""
    one, seen = training(corpus, clip), []
    assert one.optimiser is not None
    step = one.optimiser.step

    def watched() -> None:
        given = [p.grad for p in one.model.parameters() if p.grad is not None]
        seen.append(torch.cat([gradient.flatten() for gradient in given]))
        step()

    one.optimiser.step = watched  # type: ignore[method-assign]
    list(fit(one, corpus, 1))
    return seen


def moved(corpus: Corpus, clips: list[float | None], fresh: Tensor) -> Tensor:
    """What each member's first step took its gradient `fresh` for: m is (1 − β) of it."""
    company = PackedTrainer([training(corpus, clip) for clip in clips])
    company.rows.gradients.copy_(fresh.expand(len(clips), -1))
    company._move([1e-3] * len(clips))
    groups = company.rows.optimiser.param_groups
    states = (company.rows.optimiser.state[group["params"][0]] for group in groups)
    return torch.stack([state["exp_avg"] for state in states]) / (1 - groups[0]["betas"][0])


@pytest.fixture(params=["compiled", "operations"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are moved in one compiled pass, or by torch's optimiser."""
    if request.param == "operations":
        monkeypatch.setattr(processor, "TYPES", frozenset())


def same_direction(one: Tensor, other: Tensor) -> None:
    """Their cosine is 1, up to what float32 leaves of each number."""
    cosine = torch.cosine_similarity(one.double(), other.double(), dim=0)
    assert cosine.item() == pytest.approx(1, abs=1e-10)


@pytest.fixture
def fresh(corpus: Corpus) -> Tensor:
    """A gradient of norm 10 or so, one of its numbers far above the others."""
    layout = PackedTrainer([training(corpus, None)]).rows.layout
    noise, generator = torch.zeros(layout.length), torch.Generator().manual_seed(0)
    for part in layout.stacked(noise[None]).values():
        part.normal_(generator=generator)
    noise[0] *= 10
    assert noise.norm() > 1
    return noise


def test_a_clipped_gradient_points_where_it_pointed(corpus: Corpus) -> None:
    before, after = gradients(corpus, None)[0], gradients(corpus, BELOW)[0]
    assert before.norm() > 2 * BELOW
    assert after.norm().item() == pytest.approx(BELOW, rel=1e-3)
    same_direction(before, after)


def test_below_the_threshold_every_step_is_as_without_one_to_the_bit(corpus: Corpus) -> None:
    free, clipped = gradients(corpus, None), gradients(corpus, ABOVE)
    assert len(free) > 2
    assert max(one.norm() for one in free) < ABOVE
    assert all(one.equal(other) for one, other in zip(free, clipped, strict=True))


@pytest.mark.usefixtures("way")
def test_side_by_side_a_clipped_gradient_points_where_it_pointed(
    corpus: Corpus, fresh: Tensor
) -> None:
    after = moved(corpus, [BELOW, 2 * BELOW], fresh)
    for row, clip in zip(after, (BELOW, 2 * BELOW), strict=True):
        assert row.norm().item() == pytest.approx(clip, rel=1e-3)
        same_direction(fresh, row)


@pytest.mark.usefixtures("way")
def test_side_by_side_who_is_below_its_threshold_is_not_touched(
    corpus: Corpus, fresh: Tensor
) -> None:
    after = moved(corpus, [None, BELOW, ABOVE], fresh)
    torch.testing.assert_close(after[0], fresh, rtol=1e-6, atol=0)
    assert after[2].equal(after[0])
    assert not after[1].equal(after[0])
