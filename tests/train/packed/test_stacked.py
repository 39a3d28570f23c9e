"""Members whose common step is recorded and replayed end where each would have ended alone."""

import copy
import dataclasses
import gc
import weakref

import pytest

from lmzoo import zoo
from lmzoo.train.capture import stepper
from lmzoo.train.capture.recorder import RecordingError
from lmzoo.train.packed import trainer as together
from lmzoo.train.packed.recorder import OperationRecorder
from lmzoo.train.packed.trainer import fit_packed, train_packed_epoch
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.trainer import Training, fit
from tests.laws.fusing import agree

FIRST = Recipe(batch=16, lr=0.05, clip=0.1, warmup=9)
KINDS = [
    FIRST,
    Recipe(batch=16, optimiser="adamw", weight_decay=0.1),
    dataclasses.replace(RECIPES["published"], batch=16),
]


def _members(corpus, recipe=FIRST):
    recipes = [recipe, dataclasses.replace(recipe, lr=3e-3, clip=None, warmup=0), recipe]
    found = []
    for seed, (one, cuts) in enumerate(zip(recipes, ([], [4], [1]), strict=True)):
        fields = {"width": 4, "emission": {"components": 3}, "cell": {"name": "mgu", "cuts": cuts}}
        model = zoo.build(zoo.config("DLM46", **fields), corpus.task, seed)
        found.append(Training(model, one, seed))
        for group in found[-1].optimiser.param_groups if recipe.optimiser == "rmsprop" else ():
            group["foreach"] = True
    return found


def _alone(monkeypatch, corpus, epochs, recipe=FIRST):
    with monkeypatch.context() as other:
        other.setattr(stepper, "recorder", lambda device: None)
        found = _members(corpus, recipe)
    for training, count in zip(found, epochs, strict=True):
        assert list(fit(training, corpus, count))
    return found


@pytest.mark.parametrize("recipe", KINDS, ids=lambda r: f"{r.optimiser}-{r.accumulate}")
def test_replayed_together_as_alone(monkeypatch, corpus, taping, recipe):
    expected = _alone(monkeypatch, corpus, [4, 4, 4], recipe)
    fused = _members(corpus, recipe)
    _like_cuda(monkeypatch)
    list(fit_packed(fused, corpus, 4))
    for one, other in zip(expected, fused, strict=True):
        agree(one, other)
        rates = [t.optimiser.param_groups[0]["lr"] for t in (one, other)]
        assert rates[0] == rates[1]
        assert type(rates[1]) is float
    assert taping.replays > 4


def test_recordings_outlast_an_epoch_and_a_member_that_trains_alone_between(
    monkeypatch, corpus, taping
):
    expected = _alone(monkeypatch, corpus, [7, 8, 7])
    fused = _members(corpus)
    for _ in range(4):
        train_packed_epoch(fused, corpus)
    before = taping.recordings
    assert before > 0
    next(fit(fused[1], corpus, 5))
    for _ in range(3):
        train_packed_epoch(fused, corpus)
    # Its own steps alone are too few to be recorded, and the company's are known.
    assert taping.recordings <= before + 1
    for one, other in zip(expected, fused, strict=True):
        agree(one, other)


def test_a_member_leaves_and_the_others_are_recorded_anew(monkeypatch, corpus, taping):
    expected = _alone(monkeypatch, corpus, [6, 3, 6])
    fused = _members(corpus)
    list(fit_packed(fused, corpus, 3))
    before = taping.recordings
    list(fit_packed([fused[0], fused[2]], corpus, 6))
    assert taping.recordings > before
    for one, other in zip(expected, fused, strict=True):
        agree(one, other)


def test_on_a_processor_a_company_is_replayed_and_left_behind_with_its_memory(corpus):
    fused = _members(corpus)
    list(fit_packed(fused, corpus, 2))
    company = fused[0].packed_trainer
    assert company.stepper.replays
    assert company.stepper.multiple == 1
    train_packed_epoch(fused, corpus)
    assert fused[0].packed_trainer is company
    train_packed_epoch([fused[1], fused[0]], corpus)
    assert fused[1].packed_trainer.rows.trainings == [fused[1], fused[0]]
    assert fused[0].packed_trainer is None


def test_a_step_that_is_refused_was_done_once(monkeypatch, corpus, caplog):
    class Refusing(OperationRecorder):
        def record(self, work):
            super().record(work)
            raise RecordingError("it may not be")

    expected = _alone(monkeypatch, corpus, [3, 3, 3])
    monkeypatch.setattr(together, "Tapes", Refusing)
    fused = _members(corpus)
    list(fit_packed(fused, corpus, 3))
    for one, other in zip(expected, fused, strict=True):
        agree(one, other)
    assert "the steps of 3 members of recurrent_lm are not replayed: it may not be" in caplog.text


def test_a_member_that_begins_again_is_as_fresh_as_it_was(monkeypatch, corpus):
    expected = _alone(monkeypatch, corpus, [2, 4, 4])
    fused = _members(corpus)
    begin = copy.deepcopy(fused[0].dump())
    list(fit_packed(fused, corpus, 2))
    company = fused[0].packed_trainer
    fused[0].load(begin)
    for _ in range(2):
        train_packed_epoch(fused, corpus)
    assert fused[0].packed_trainer is company
    for one, other in zip(expected, fused, strict=True):
        agree(one, other)


def test_a_member_that_is_gone_is_not_taken_for_trained(monkeypatch, corpus):
    fused = _members(corpus)
    [expected, *_] = _alone(monkeypatch, corpus, [5, 1, 1])
    list(fit_packed(fused, corpus, 2))
    del fused[1:]
    list(fit_packed(fused, corpus, 5))
    agree(expected, fused[0])


def test_what_a_company_held_is_freed_with_its_members_and_at_once(corpus):
    fused = _members(corpus)
    list(fit_packed(fused, corpus, 3))
    arena = weakref.ref(fused[0].packed_trainer.stepper._recorder._arena)
    assert arena() is not None
    gc.disable()
    try:
        fused.clear()
        assert arena() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(batch=16, optimiser="rmsprop"),
        Recipe(batch=16, accumulate="epoch"),
        KINDS[-1],
    ],
)
def test_what_torch_moves_on_the_host_is_not_replayed_there(corpus, recipe):
    fused = _members(corpus, recipe)
    list(fit_packed(fused, corpus, 2))
    assert all(training.packed_trainer is None for training in fused)


def _like_cuda(monkeypatch):
    """Optimisers of rows walk over lists of tensors, as they do on CUDA."""
    from lmzoo.train.packed import stacked as rows

    made = rows.make_optimiser

    def make(recipe, groups):
        optimiser = made(recipe, groups)
        for group in optimiser.param_groups if recipe.optimiser == "rmsprop" else ():
            group["foreach"] = True
        return optimiser

    monkeypatch.setattr(rows, "make_optimiser", make)
