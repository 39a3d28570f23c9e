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


def members(corpus, *seeds):
    return [member(corpus, seed) for seed in seeds]


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


def test_idle_rows_change_no_digit(trainers, corpus, fake_recorder, monkeypatch):
    """Idle rows may hold any number."""
    read = StackedParameters.read

    def poison(stacked):
        read(stacked)
        idle = len(stacked.trainings)
        for matrix in (stacked.values, *stacked.optimiser.state.values()):
            matrix.detach()[idle:] = math.nan

    full = members(corpus, *range(8))
    part = members(corpus, *range(5))
    for _ in range(3):
        trainers.train_epoch(full, corpus)
    monkeypatch.setattr(StackedParameters, "read", poison)
    trainers.free()
    for _ in range(3):
        trainers.train_epoch(part, corpus)
    [trainer] = trainers._shared.values()
    assert len(trainer.stacked.values) == 8
    for actual, expected in zip(part, full, strict=False):
        assert_same_bits(numbers(actual), numbers(expected))


def test_members_that_left_are_not_written(trainers, corpus, fake_recorder, alone):
    pack = members(corpus, *range(5))
    for _ in range(3):
        trainers.train_epoch(pack, corpus)
    left = [pack.pop(i) for i in (3, 0)]
    before = [numbers(training) for training in left]
    recordings = fake_recorder.recordings
    for _ in range(2):
        trainers.train_epoch(pack, corpus)
    assert fake_recorder.recordings == recordings
    for training, state in zip(left, before, strict=True):
        assert_same_bits(numbers(training), state)
    for training in pack:
        assert_trainings_equal(training, alone(training.seed, 5))


def test_other_members_use_the_recordings(trainers, corpus, fake_recorder, alone):
    """Their learning rates, clips, weight decays and cuts are their own."""

    def train(*seeds):
        pack = members(corpus, *seeds)
        for _ in range(3):
            trainers.train_epoch(pack, corpus)
        return pack

    train(1, 1, 1, 1)
    recordings = fake_recorder.recordings
    assert recordings > 0
    train(0, 1, 2, 3)
    for training in train(2, 3, 0):
        assert_trainings_equal(training, alone(training.seed, 3))
    assert fake_recorder.recordings == recordings


def test_batches_that_were_made_ahead_are_those_of_their_corpus(trainers, corpus, fake_recorder):
    """A sweep trains members of one structure on several corpora."""
    rows = torch.arange(len(corpus.train)).flip(0)
    train = Sequences(corpus.train.ids[rows], corpus.train.lengths[rows])
    other = dataclasses.replace(corpus, train=train)
    pack = members(corpus, 0, 1)
    twins = members(corpus, 0, 1)
    for data in (corpus, other):
        trainers.train_epoch(pack, data)
        KeptTrainers().train_epoch(twins, data)  # has made nothing ahead
    for training, twin in zip(pack, twins, strict=True):
        assert_trainings_equal(training, twin)


@pytest.mark.parametrize(
    ("members_", "rows"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (64, 64), (65, 128)]
)
def test_a_pack_has_a_power_of_two_of_rows(members_, rows):
    assert rows_for(members_) == rows


SIZES = [(5, {8}), (8, {8}), (3, {8}), (2, {2, 8}), (1, {2, 8}), (9, {2, 8, 16})]
"""Members of one pack after another, and the rows of the trainers that are kept."""


def test_a_pack_moves_to_fewer_rows_when_a_quarter_is_in_use(trainers, corpus, fake_recorder):
    for count, rows in SIZES:
        trainers.train_epoch(members(corpus, *range(count)), corpus)
        assert {key[-1] for key in trainers._shared} == rows
    smallest = trainers._find(members(corpus, 0, 1))
    assert len(smallest.stacked.values) == 2


def test_validation_and_test_are_recorded(trainers, corpus, fake_recorder, monkeypatch):
    monkeypatch.setattr(pack_trainer, "MIN_EVALUATION_BATCH", 8)
    monkeypatch.setattr(pack_trainer, "EVALUATION_BATCH", 8)  # of 20 sequences, 4 are left
    pack = members(corpus, *range(3))
    for _ in range(4):
        trainers.train_epoch(pack, corpus)
    evaluations = list(next(iter(trainers._shared.values()))._evaluation._stepper._recordings)
    assert len(evaluations) == 1
    before = fake_recorder.recordings, fake_recorder.runs
    for training, other in zip(pack, members(corpus, 0, 1, 2), strict=True):
        training._best = copy.deepcopy(other.model.state_dict())
    losses = trainers.test_losses(pack, corpus)
    assert (fake_recorder.recordings, fake_recorder.runs) == before
    for training, found in zip(pack, losses, strict=True):
        training.model.load_state_dict(training.best_weights)
        expected = evaluate(training.model, corpus.test)
        assert found.token == pytest.approx(expected.token, abs=1e-6)
        torch.testing.assert_close(found.nll, expected.nll, rtol=1e-5, atol=1e-5)


def test_a_larger_part_is_evaluated_into_new_memory(trainers, corpus, fake_recorder):
    """What was recorded before would write to the memory that is freed."""
    pack = members(corpus, *range(3))
    for _ in range(4):
        trainers.train_epoch(pack, corpus)
    [trainer] = trainers._shared.values()
    assert trainer._evaluation._stepper._recordings
    larger = dataclasses.replace(corpus, test=corpus.train)
    for _ in range(4):
        losses = trainer.evaluate(larger.test, larger)
        trainer.evaluate(larger.valid, larger)
    for training, found in zip(pack, losses, strict=True):
        torch.testing.assert_close(
            found.nll, evaluate(training.model, larger.test).nll, rtol=1e-5, atol=1e-5
        )


def test_the_test_of_a_pack_leaves_no_trace(trainers, corpus, fake_recorder):
    tested = members(corpus, *range(3))
    other = members(corpus, *range(3))
    for _ in range(3):
        trainers.train_epoch(tested, corpus)
        trainers.test_losses(tested, corpus)
    trainers.free()
    for _ in range(3):
        trainers.train_epoch(other, corpus)
    for actual, expected in zip(tested, other, strict=True):
        assert_same_bits(numbers(actual), numbers(expected))


def test_without_a_shared_trainer_a_pack_tests_nothing(trainers, corpus):
    pack = members(corpus, 0, 1)
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
    recipes = [recipe, dataclasses.replace(recipe, lr=3e-3, clip=None, warmup=0), recipe]
    members = []
    cuts = [[], [4], [1]]
    for seed in range(3):
        cell = {"name": "mgu", "cuts": cuts[seed]}
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
        assert type(training.optimiser.param_groups[0]["lr"]) is float
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
