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
    own = Recipe(batch=16, **recipe)
    cells = [{"name": "mgu", "cuts": CUTS[seed % 3]} for seed in range(count)]
    return [member(corpus, seed, own, cell=cell) for seed, cell in enumerate(cells)]


def tensors(training):
    """Return the tensors of a checkpoint."""
    state = training.dump()
    return state["weights"], state["optimiser"]["state"], state["best"]["weights"]


class Operations(TorchDispatchMode):
    """Counts the operations that compute or copy something; those on lists, each tensor."""

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").partition(".")[0]
        if not returns_views(func) and not name.startswith(("empty", "_unsafe_view")):
            self.count[name] += len(args[0]) if name.startswith("_foreach") else 1
        return func(*args, **(kwargs or {}))


def test_an_epoch_moves_the_state_of_any_number_of_members_in_a_few_operations(corpus, monkeypatch):
    """A GPU would run these between its steps; a checkpoint is made of copies on the host."""
    counts = []
    copies = []
    to_host = pack_parameters.to_host
    monkeypatch.setattr(
        pack_parameters, "to_host", lambda t: copies.append(t.clone()) or to_host(t)
    )
    for size in (3, 12):
        trainings = members(corpus, size)
        trainer = PackedTrainer(trainings, 16)
        trainer.train_epoch(corpus.train)
        trainer.write_back()
        copies.clear()
        with Operations() as moved:
            trainer.stacked.read()
            trainer.replace(trainings)
            trainer.write_back()
            gradients = trainer.stacked.gradients
            trainer.stacked.optimiser.step([0.1] * 16, torch.ones(16), gradients)
            for training in trainings:
                training.epoch = 1
                training.add_record({"valid_token": 1.0})
        with Operations() as saved:
            for training in trainings:
                checkpoint_bytes(training.dump())
        assert saved.count == {"cat": size}
        assert len(copies) == 4
        counts.append(moved.count)
    assert counts[0] == counts[1]
    assert counts[0].total() < 70  # 30 of them are Adam


@pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])
def test_the_state_of_a_member_is_a_copy_that_the_next_epoch_does_not_change(corpus, optimiser):
    trainings = members(corpus, 3, optimiser=optimiser)
    trainers = KeptTrainers()
    trainers.train_epoch(trainings, corpus)
    states = [tensors(training) for training in trainings]
    before = copy.deepcopy(states)
    trainers.train_epoch(trainings, corpus)
    torch.testing.assert_close(states, before, rtol=0, atol=0)
    for (weights, *_), training in zip(states, trainings, strict=True):
        assert list(weights) == list(training.model.state_dict())
    size = len(checkpoint_bytes(trainings[0].dump()))
    next(fit(trainings[0], corpus, 3))
    assert size <= len(checkpoint_bytes(trainings[0].dump()))


def test_a_member_that_trains_alone_has_memory_of_its_own(corpus):
    trainings = members(corpus, 3)
    trainers = KeptTrainers()
    trainers.train_epoch(trainings, corpus)
    others = [tensors(training) for training in trainings[1:]]
    next(fit(trainings[0], corpus, 2))
    assert trainings[0].row is None
    own = list(trainings[0].model.parameters())
    own += [value for s in trainings[0].optimiser.state.values() for value in s.values()]
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in own)
    assert len({t.data_ptr() for t in own}) == len(own)
    torch.testing.assert_close([tensors(t) for t in trainings[1:]], others, rtol=0, atol=0)
