"""The state of all pack members moves in a few operations, and each member keeps its own."""

import copy
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lmzoo.train import pack_parameters
from lmzoo.train.checkpoint import checkpoint_bytes
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.pack_recorder import returns_views
from lmzoo.train.pack_trainer import PackedTrainer
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import fit
from tests.train.members import member

CUTS = ([], [4], [1])


def members(corpus, count, **recipe):
    trainings = []
    for seed in range(count):
        cell = {"name": "mgu", "cuts": CUTS[seed % 3]}
        training = member(corpus, seed, Recipe(batch=16, **recipe), cell=cell)
        trainings.append(training)
    return trainings


def tensors(training):
    """Return the tensors of a checkpoint."""
    state = training.dump()
    return state["weights"], state["optimiser"]["state"], state["best"]["weights"]


def assert_same(actual, expected):
    """Assert that all tensors are equal, bit by bit."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


class Operations(TorchDispatchMode):
    """Counts the operations that compute or copy something; those on lists, each tensor."""

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name.startswith("_foreach"):
            self.count[name] += len(args[0])
        elif not returns_views(func) and not name.startswith(("empty", "_unsafe_view")):
            self.count[name] += 1
        if kwargs is None:
            kwargs = {}
        return func(*args, **kwargs)


@pytest.fixture
def copies(monkeypatch):
    """Return the list of the tensors that are copied to the host."""
    copies = []
    to_host = pack_parameters.to_host

    def record(tensor):
        copies.append(tensor.clone())
        return to_host(tensor)

    monkeypatch.setattr(pack_parameters, "to_host", record)
    return copies


def moves_of_an_epoch(trainer, trainings):
    """Return how often each operation moves the state between two epochs."""
    with Operations() as moved:
        trainer.stacked.read()
        trainer.replace(trainings)
        trainer.write_back()
        gradients = trainer.stacked.gradients
        trainer.stacked.optimiser.step([0.1] * 16, torch.ones(16), gradients)
        for training in trainings:
            # As after an epoch, with its loss.
            training.epoch = 1
            training.add_record({"valid_token": 1.0})
    return moved.count


def test_an_epoch_moves_the_state_of_any_number_of_members_in_a_few_operations(corpus, copies):
    """A GPU would run these between its steps; a checkpoint is made of copies on the host."""
    counts = []
    for size in (3, 12):
        trainings = members(corpus, size)
        trainer = PackedTrainer(trainings, 16)
        trainer.train_epoch(corpus.train)
        trainer.write_back()
        copies.clear()
        counts.append(moves_of_an_epoch(trainer, trainings))
        with Operations() as saved:
            for training in trainings:
                checkpoint_bytes(training.dump())
        assert saved.count == {"cat": size}
        assert len(copies) == 4
    few, many = counts
    assert few == many
    assert few.total() < 70  # 30 of them are Adam


@pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])
def test_the_state_of_a_member_is_a_copy_that_the_next_epoch_does_not_change(corpus, optimiser):
    trainings = members(corpus, 3, optimiser=optimiser)
    trainers = KeptTrainers()
    trainers.train_epoch(trainings, corpus)
    states = [tensors(training) for training in trainings]
    before = copy.deepcopy(states)
    trainers.train_epoch(trainings, corpus)
    assert_same(states, before)
    for (weights, *_), training in zip(states, trainings, strict=True):
        assert list(weights) == list(training.model.state_dict())


def test_the_state_of_a_member_is_no_larger_than_that_of_a_training_alone(corpus):
    trainings = members(corpus, 3)
    trainers = KeptTrainers()
    trainers.train_epoch(trainings, corpus)
    trainers.train_epoch(trainings, corpus)
    first = trainings[0]
    size = len(checkpoint_bytes(first.dump()))
    next(fit(first, corpus, 3))
    alone = checkpoint_bytes(first.dump())
    assert size <= len(alone)


def test_a_member_that_trains_alone_has_memory_of_its_own(corpus):
    trainings = members(corpus, 3)
    KeptTrainers().train_epoch(trainings, corpus)
    first, *others = trainings
    before = [tensors(training) for training in others]
    next(fit(first, corpus, 2))
    # It is no row of the pack any more.
    assert first.row is None
    own = list(first.model.parameters())
    for state in first.optimiser.state.values():
        own += state.values()
    addresses = set()
    for tensor in own:
        storage = tensor.untyped_storage()
        assert storage.nbytes() == tensor.nbytes
        addresses.add(storage.data_ptr())
    assert len(addresses) == len(own)
    after = [tensors(training) for training in others]
    assert_same(after, before)
