"""A kept trainer serves one pack after another; members whose steps are replayed end as alone."""

import copy
import dataclasses
import gc
import math
import weakref

import pytest
import torch

from lmzoo.data.corpus import Sequences
from lmzoo.laws_of_training.packing import assert_trainings_equal
from lmzoo.train import kept_trainers, pack_trainer, stepper
from lmzoo.train.evaluate import evaluate
from lmzoo.train.kept_trainers import KeptTrainers, rows_for
from lmzoo.train.pack_parameters import StackedParameters
from lmzoo.train.pack_recorder import OperationRecorder
from lmzoo.train.recipe import Recipe, named_recipe
from lmzoo.train.stepper import RecordingError
from lmzoo.train.trainer import fit
from tests.train import members as small

BASE = Recipe(batch=15, lr=0.02)
RECIPES = [
    BASE,
    dataclasses.replace(BASE, lr=3e-3, clip=None),
    dataclasses.replace(BASE, clip=0.05, weight_decay=0.1),
    dataclasses.replace(BASE, lr=0.05, warmup=5),
]
CUTS = ([], [4], [1], [0, 2])


def member(corpus, seed, width=4):
    cell = {"name": "mgu", "cuts": CUTS[seed % 4]}
    return small.member(corpus, seed, RECIPES[seed % 4], width=width, cell=cell)


def members(corpus, count):
    return [member(corpus, seed) for seed in range(count)]


@pytest.fixture
def alone(monkeypatch, corpus):
    """Train the member of a seed by itself, without a recorder."""

    def train(seed, epochs):
        with monkeypatch.context() as patch:
            patch.setattr(stepper, "device_recorder", lambda device: None)
            training = member(corpus, seed)
            assert list(fit(training, corpus, epochs))
        return training

    return train


def numbers(training):
    """Return everything that a training writes to its checkpoint, but times."""
    state = copy.deepcopy(training.dump())
    del state["parameters"]  # names
    state["record"].pop("event")
    for key in ("seconds", "tokens_per_second", "host", "device"):
        state["record"].pop(key, None)
    return state


def assert_same_bits(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def train(trainers, pack, corpus, epochs):
    for _ in range(epochs):
        trainers.train_epoch(pack, corpus)


def kept_trainer(trainers):
    """Return the only trainer that is kept."""
    (trainer,) = trainers._shared.values()
    return trainer


def test_idle_rows_change_no_digit(trainers, corpus, fake_recorder, monkeypatch):
    """Idle rows may hold any number."""
    read = StackedParameters.read

    def poison(stacked):
        read(stacked)
        first_idle = len(stacked.trainings)
        matrices = list(stacked.optimiser.state.values())
        matrices.append(stacked.values)
        for matrix in matrices:
            matrix.detach()[first_idle:] = math.nan

    full = members(corpus, 8)
    part = members(corpus, 5)
    train(trainers, full, corpus, 3)
    monkeypatch.setattr(StackedParameters, "read", poison)
    # A new trainer reads its parameters by the patched method.
    trainers.free()
    train(trainers, part, corpus, 3)
    assert len(kept_trainer(trainers).stacked.values) == 8
    assert_same_bits(list(map(numbers, part)), list(map(numbers, full[:5])))


def test_members_that_left_are_not_written(trainers, corpus, fake_recorder, alone):
    pack = members(corpus, 5)
    train(trainers, pack, corpus, 3)
    first, second, third, fourth, fifth = pack
    left = [first, fourth]
    stayed = [second, third, fifth]
    before = list(map(numbers, left))
    recordings = fake_recorder.recordings
    train(trainers, stayed, corpus, 2)
    assert fake_recorder.recordings == recordings
    assert_same_bits(list(map(numbers, left)), before)
    for training in stayed:
        expected = alone(training.seed, 5)
        assert_trainings_equal(training, expected)


def test_other_members_use_the_recordings(trainers, corpus, fake_recorder, alone):
    """Their learning rates, clips, weight decays and cuts are their own."""
    equal = [member(corpus, 1) for _ in range(4)]
    train(trainers, equal, corpus, 3)
    recordings = fake_recorder.recordings
    assert recordings > 0
    train(trainers, members(corpus, 4), corpus, 3)
    # Three members have four rows, too.
    last = [member(corpus, seed) for seed in (2, 3, 0)]
    train(trainers, last, corpus, 3)
    for training in last:
        expected = alone(training.seed, 3)
        assert_trainings_equal(training, expected)
    assert fake_recorder.recordings == recordings


def test_batches_that_were_made_ahead_are_those_of_their_corpus(trainers, corpus, fake_recorder):
    """A sweep trains members of one structure on several corpora."""
    reversed_ = Sequences(corpus.train.ids.flip(0), corpus.train.lengths.flip(0))
    other = dataclasses.replace(corpus, train=reversed_)
    pack = members(corpus, 2)
    twins = members(corpus, 2)
    for data in (corpus, other):
        trainers.train_epoch(pack, data)
        KeptTrainers().train_epoch(twins, data)  # has made nothing ahead
    for training, twin in zip(pack, twins, strict=True):
        assert_trainings_equal(training, twin)


ROWS_FOR = {1: 1, 2: 2, 3: 4, 5: 8, 8: 8, 9: 16, 64: 64, 65: 128}


@pytest.mark.parametrize("count", ROWS_FOR)
def test_a_pack_has_a_power_of_two_of_rows(count):
    assert rows_for(count) == ROWS_FOR[count]


KEPT_ROWS = {5: {8}, 8: {8}, 3: {8}, 2: {2, 8}, 1: {2, 8}, 9: {2, 8, 16}}
"""Members of one pack after another, and the rows of the trainers that are kept."""


def test_a_pack_moves_to_fewer_rows_when_a_quarter_is_in_use(trainers, corpus, fake_recorder):
    for count, rows in KEPT_ROWS.items():
        trainers.train_epoch(members(corpus, count), corpus)
        assert {key[-1] for key in trainers._shared} == rows
    smallest = trainers._find(members(corpus, 2))
    assert len(smallest.stacked.values) == 2


@pytest.fixture
def evaluated(trainers, corpus, fake_recorder, monkeypatch):
    """Return the members of a pack whose validation was recorded."""
    monkeypatch.setattr(pack_trainer, "MIN_EVALUATION_BATCH", 8)
    monkeypatch.setattr(pack_trainer, "EVALUATION_BATCH", 8)  # of 20 sequences, 4 are left
    pack = members(corpus, 3)
    train(trainers, pack, corpus, 4)
    # The best weights are others than the last, and the test has to load them.
    for training, other in zip(pack, members(corpus, 3), strict=True):
        training._best = copy.deepcopy(other.model.state_dict())
    return pack


def test_the_test_uses_the_recording_of_the_validation(trainers, corpus, fake_recorder, evaluated):
    recordings = kept_trainer(trainers)._evaluation._stepper._recordings
    assert len(recordings) == 1
    before = fake_recorder.recordings, fake_recorder.runs
    trainers.test_losses(evaluated, corpus)
    assert (fake_recorder.recordings, fake_recorder.runs) == before


def test_the_losses_of_a_recorded_test_are_those_of_the_best_weights(trainers, corpus, evaluated):
    losses = trainers.test_losses(evaluated, corpus)
    for training, found in zip(evaluated, losses, strict=True):
        training.model.load_state_dict(training.best_weights)
        expected = evaluate(training.model, corpus.test)
        assert found.token == pytest.approx(expected.token, abs=1e-6)
        assert_same_losses(found, expected)


def assert_same_losses(actual, expected):
    """Assert that each sequence has the same loss up to the rounding of single precision."""
    torch.testing.assert_close(actual.nll, expected.nll, rtol=1e-5, atol=1e-5)


def test_a_larger_part_is_evaluated_into_new_memory(trainers, corpus, fake_recorder):
    """What was recorded before would write to the memory that is freed."""
    pack = members(corpus, 3)
    train(trainers, pack, corpus, 4)
    trainer = kept_trainer(trainers)
    assert trainer._evaluation._stepper._recordings
    larger = dataclasses.replace(corpus, test=corpus.train)
    for _ in range(4):
        losses = trainer.evaluate(larger.test, larger)
        trainer.evaluate(larger.valid, larger)
    for training, found in zip(pack, losses, strict=True):
        expected = evaluate(training.model, larger.test)
        assert_same_losses(found, expected)


def test_the_test_of_a_pack_leaves_no_trace(trainers, corpus, fake_recorder):
    tested = members(corpus, 3)
    untested = members(corpus, 3)
    for _ in range(3):
        trainers.train_epoch(tested, corpus)
        trainers.test_losses(tested, corpus)
    trainers.free()
    train(trainers, untested, corpus, 3)
    assert_same_bits(list(map(numbers, tested)), list(map(numbers, untested)))


def test_without_a_shared_trainer_a_pack_tests_nothing(trainers, corpus):
    pack = members(corpus, 2)
    trainers.train_epoch(pack, corpus)
    assert trainers.test_losses(pack, corpus) == []


def test_the_trainer_used_longest_ago_makes_room(trainers, corpus, fake_recorder, monkeypatch):
    monkeypatch.setattr(kept_trainers, "MAX_TRAINERS", 2)
    first = [member(corpus, 0, 3)]
    second = [member(corpus, 0, 4)]
    third = [member(corpus, 0, 5)]
    trainers.train_epoch(first, corpus)
    trainers.train_epoch(second, corpus)
    trainers.train_epoch(first, corpus)
    trainers.train_epoch(third, corpus)
    assert trainers._find(second) is None
    assert trainers._find(first) is not None
    trainers.free()
    assert not trainers._shared


FIRST = Recipe(batch=16, lr=0.05, clip=0.1, warmup=9)
RECIPE_KINDS = [
    FIRST,
    Recipe(batch=16, optimiser="adamw", weight_decay=0.1),
    dataclasses.replace(named_recipe("published"), batch=16),
]


def _members(corpus, recipe=FIRST):
    unclipped = dataclasses.replace(recipe, lr=3e-3, clip=None, warmup=0)
    recipes = [recipe, unclipped, recipe]
    members = []
    for seed in range(3):
        cell = {"name": "mgu", "cuts": CUTS[seed]}
        member = small.member(corpus, seed, recipes[seed], cell=cell)
        if recipe.optimiser == "rmsprop":
            for group in member.optimiser.param_groups:
                group["foreach"] = True  # RMSprop processes lists of tensors, as it does on CUDA
        members.append(member)
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
    for training in packed:
        first, *_ = training.optimiser.param_groups
        # A replay reads its rates from a tensor, which does not stay in the optimiser.
        assert type(first["lr"]) is float
    assert fake_recorder.replays > 4


def test_recordings_survive_a_lone_member(trainers, monkeypatch, corpus, fake_recorder):
    expected = _train_alone(monkeypatch, corpus, [7, 8, 7])
    packed = _members(corpus)
    train(trainers, packed, corpus, 4)
    before = fake_recorder.recordings
    assert before > 0
    next(fit(packed[1], corpus, 5))
    train(trainers, packed, corpus, 3)
    # The member's own steps are too few to be recorded, and those of the pack are recorded.
    assert fake_recorder.recordings <= before + 1
    _assert_all_equal(packed, expected)


def test_a_packed_trainer_is_kept_until_its_members_change(trainers, corpus):
    packed = _members(corpus)
    first, second, _ = packed
    list(trainers.fit(packed, corpus, 2))
    packed_trainer = trainers._own[first]
    assert packed_trainer.stepper.replays
    assert not packed_trainer.stepper.few_shapes
    trainers.train_epoch(packed, corpus)
    assert trainers._own[first] is packed_trainer
    # A trainer is kept under the first of its members.
    other_order = [second, first]
    trainers.train_epoch(other_order, corpus)
    assert trainers._own[second].stacked.trainings == other_order
    assert first not in trainers._own


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
    first, *_ = packed
    start = copy.deepcopy(first.dump())
    list(trainers.fit(packed, corpus, 2))
    packed_trainer = trainers._own[first]
    first.load(start)
    train(trainers, packed, corpus, 2)
    assert trainers._own[first] is packed_trainer
    _assert_all_equal(packed, expected)


def test_a_pack_whose_other_members_are_deleted_goes_on(trainers, monkeypatch, corpus):
    packed = _members(corpus)
    expected, *_ = _train_alone(monkeypatch, corpus, [5, 1, 1])
    list(trainers.fit(packed, corpus, 2))
    del packed[1:]
    list(trainers.fit(packed, corpus, 5))
    assert_trainings_equal(packed[0], expected)


def test_the_memory_block_is_freed_with_the_members_without_garbage_collection(trainers, corpus):
    packed = _members(corpus)
    list(trainers.fit(packed, corpus, 3))
    packed_trainer = trainers._own[packed[0]]
    block = weakref.ref(packed_trainer.stepper._recorder._block)
    # The name would keep the trainer.
    del packed_trainer
    assert block() is not None
    gc.disable()
    try:
        packed.clear()
        assert block() is None
    finally:
        gc.enable()
