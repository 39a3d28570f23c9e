"""Pack members whose steps are recorded and replayed end as if trained alone."""

import copy
import dataclasses
import gc
import weakref

import pytest

from lmzoo.laws_of_training.packing import assert_trainings_equal
from lmzoo.train import pack_trainer, stepper
from lmzoo.train.pack_recorder import OperationRecorder
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.recorder import RecordingError
from lmzoo.train.trainer import fit
from tests.train.members import member

FIRST = Recipe(batch=16, lr=0.05, clip=0.1, warmup=9)
RECIPE_KINDS = [
    FIRST,
    Recipe(batch=16, optimiser="adamw", weight_decay=0.1),
    dataclasses.replace(RECIPES["published"], batch=16),
]


def _set_foreach(optimiser):
    """Make RMSprop process lists of tensors, as it does on CUDA."""
    for group in optimiser.param_groups:
        group["foreach"] = True


def _members(corpus, recipe=FIRST):
    recipes = [recipe, dataclasses.replace(recipe, lr=3e-3, clip=None, warmup=0), recipe]
    members = []
    for seed, (own, cuts) in enumerate(zip(recipes, ([], [4], [1]), strict=True)):
        members.append(member(corpus, seed, own, cell={"name": "mgu", "cuts": cuts}))
        if recipe.optimiser == "rmsprop":
            _set_foreach(members[-1].optimiser)
    return members


def _train_alone(monkeypatch, corpus, epochs, recipe=FIRST):
    with monkeypatch.context() as patch:
        patch.setattr(stepper, "device_recorder", lambda device: None)
        members = _members(corpus, recipe)
    for training, count in zip(members, epochs, strict=True):
        assert list(fit(training, corpus, count))
    return members


def _assert_all_equal(actual, expected):
    for training, single in zip(actual, expected, strict=True):
        assert_trainings_equal(training, single)


@pytest.mark.parametrize("recipe", RECIPE_KINDS, ids=lambda r: f"{r.optimiser}-{r.accumulate}")
def test_replayed_members_equal_runs_alone(trainers, monkeypatch, corpus, fake_recorder, recipe):
    expected = _train_alone(monkeypatch, corpus, [4, 4, 4], recipe)
    packed = _members(corpus, recipe)
    list(trainers.fit(packed, corpus, 4))
    _assert_all_equal(packed, expected)
    assert all(type(training.optimiser.param_groups[0]["lr"]) is float for training in packed)
    assert fake_recorder.replays > 4


def test_recordings_survive_a_lone_member(trainers, monkeypatch, corpus, fake_recorder):
    expected = _train_alone(monkeypatch, corpus, [7, 8, 7])
    packed = _members(corpus)
    for _ in range(4):
        trainers.train_epoch(packed, corpus)
    before = fake_recorder.recordings
    assert before > 0
    next(fit(packed[1], corpus, 5))
    for _ in range(3):
        trainers.train_epoch(packed, corpus)
    # The member's own steps are too few to be recorded, and those of the pack are recorded.
    assert fake_recorder.recordings <= before + 1
    _assert_all_equal(packed, expected)


def test_a_packed_trainer_is_kept_until_its_members_change(trainers, corpus):
    packed = _members(corpus)
    list(trainers.fit(packed, corpus, 2))
    packed_trainer = trainers._own[packed[0]]
    assert packed_trainer.stepper.replays
    assert not packed_trainer.stepper.few_shapes
    trainers.train_epoch(packed, corpus)
    assert trainers._own[packed[0]] is packed_trainer
    trainers.train_epoch([packed[1], packed[0]], corpus)
    assert trainers._own[packed[1]].stacked.trainings == [packed[1], packed[0]]
    assert packed[0] not in trainers._own


def test_a_step_whose_recording_fails_is_performed_once(trainers, monkeypatch, corpus, caplog):
    class FailingRecorder(OperationRecorder):
        def record(self, work):
            super().record(work)
            raise RecordingError("it may not be")

    expected = _train_alone(monkeypatch, corpus, [3, 3, 3])
    monkeypatch.setattr(pack_trainer, "OperationRecorder", FailingRecorder)
    packed = _members(corpus)
    list(trainers.fit(packed, corpus, 3))
    _assert_all_equal(packed, expected)
    assert "the steps of 3 members of recurrent_lm are not replayed: it may not be" in caplog.text


def test_a_member_that_is_reset_starts_with_empty_optimiser_state(trainers, monkeypatch, corpus):
    expected = _train_alone(monkeypatch, corpus, [2, 4, 4])
    packed = _members(corpus)
    start = copy.deepcopy(packed[0].dump())
    list(trainers.fit(packed, corpus, 2))
    packed_trainer = trainers._own[packed[0]]
    packed[0].load(start)
    for _ in range(2):
        trainers.train_epoch(packed, corpus)
    assert trainers._own[packed[0]] is packed_trainer
    _assert_all_equal(packed, expected)


def test_a_pack_whose_other_members_are_deleted_goes_on(trainers, monkeypatch, corpus):
    packed = _members(corpus)
    [expected, *_] = _train_alone(monkeypatch, corpus, [5, 1, 1])
    list(trainers.fit(packed, corpus, 2))
    del packed[1:]
    list(trainers.fit(packed, corpus, 5))
    assert_trainings_equal(packed[0], expected)


def test_the_memory_block_is_freed_with_the_members_without_garbage_collection(trainers, corpus):
    packed = _members(corpus)
    list(trainers.fit(packed, corpus, 3))
    block = weakref.ref(trainers._own[packed[0]].stepper._recorder._block)
    assert block() is not None
    gc.disable()
    try:
        packed.clear()
        assert block() is None
    finally:
        gc.enable()
