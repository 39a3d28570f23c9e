"""Packs: a member ends training as a run that is trained alone, replayed steps as executed ones."""

import contextlib
from collections.abc import Callable, Iterator
from unittest import mock

import torch

from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.laws.tiny import (
    CLOSE,
    assert_close,
    batch,
    new_model,
    seeded,
    sources,
    training_loss,
)
from lmzoo.train import pack_trainer
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.pack_compatibility import reason_not_packable
from lmzoo.train.pack_recorder import OperationRecorder
from lmzoo.train.recipe import Recipe, Schedule
from lmzoo.train.stepper import Work
from lmzoo.train.trainer import Training, fit

# Members of a pack may differ in all that these differ in.
RECIPES = (
    Recipe(batch=4, lr=1e-2),
    Recipe(batch=4, lr=3e-3, clip=None, weight_decay=1e-2),
    Recipe(
        batch=4,
        lr=2e-2,
        clip=0.1,
        warmup=5,
        schedule=Schedule.COSINE,
        schedule_epochs=4,
    ),
)
EPOCHS = 3
REPLAYED = (
    Recipe(batch=5, lr=1e-2, warmup=3),
    Recipe(batch=5, lr=3e-3, clip=0.1, schedule=Schedule.LINEAR, schedule_epochs=EPOCHS),
)


def law_packed_equals_alone(model: LanguageModel):
    """An epoch in a pack gives the same weights and losses, or the model cannot be packed.

    Members have different seeds, recipes and epochs, so long batches of one come with short ones of
    another. In float64, because Adam's step is of full size even if a gradient is only rounding;
    it amplifies the rounding of tiny gradients, which are behind weights that start at zero.
    """
    reason = reason_not_packable(model)
    if reason:
        # Any other reason must be noise, and that there is some is checked.
        if not model.closed_form and "vmap" not in reason:
            assert _is_noisy(model), f"the model cannot be packed: {reason}"
        return
    with _float64():
        corpus = random_corpus(model)
        alone = []
        packed = []
        # Members of one pack are in different epochs.
        for epoch, recipe in enumerate(RECIPES):
            single = new_training(model, epoch, recipe)
            member = new_training(model, epoch, recipe)
            single.epoch = epoch
            member.epoch = epoch
            # Without a record nothing would be compared.
            assert list(fit(single, corpus, epoch + 1))
            alone.append(single)
            packed.append(member)
        assert KeptTrainers().train_epoch(packed, corpus)
    for single, member in zip(alone, packed, strict=True):
        assert_trainings_equal(member, single)


def assert_trainings_equal(actual: Training, expected: Training, tolerance: float = CLOSE):
    """Assert that epoch, losses, weights and optimiser state of both trainings agree."""
    assert (actual.epoch, actual.steps) == (expected.epoch, expected.steps)
    for key in ("train_token", "valid_token", "valid_sentence"):
        ours = torch.tensor(actual.record[key])
        theirs = torch.tensor(expected.record[key])
        assert_close(ours, theirs, tolerance, key)
    weights = actual.model.state_dict()
    for name, weight in expected.model.state_dict().items():
        assert_close(weights[name], weight, tolerance, name)
    assert actual.optimiser is not None
    assert expected.optimiser is not None
    state = actual.optimiser.state_dict()
    expected_state = expected.optimiser.state_dict()
    assert state["param_groups"] == expected_state["param_groups"]
    numbers = state["state"]
    expected_numbers = expected_state["state"]
    assert numbers.keys() == expected_numbers.keys()
    for place, values in expected_numbers.items():
        own = numbers[place]
        assert own.keys() == values.keys()
        for key, value in values.items():
            largest = float(value.abs().max())
            # Sums of squares may be large: their rounding is relative.
            allowed = tolerance * max(1.0, largest)
            assert_close(own[key], value, allowed, f"{key} of parameter {place}")


def new_training(model: LanguageModel, seed: int, recipe: Recipe) -> Training:
    """Return a training of a model of the same config, in the default dtype."""
    own = new_model(model, seed).to(torch.get_default_dtype())
    return Training(own, recipe, seed)


def random_corpus(model: LanguageModel) -> Corpus:
    """Return a corpus of ten random training sequences; with batches of four, one is smaller."""
    task = model.task
    parts = []
    # Each part has draws of its own.
    for seed, count in enumerate((10, 6, 2)):
        given = ()
        if model.conditional:
            given = sources(task, count, seed)
        tokens, lengths = batch(task, count, seed)
        parts.append(Sequences(tokens, lengths, sources=given))
    train, valid, test = parts
    vocabulary = Vocabulary(SPECIALS)
    return Corpus("random", vocabulary, train, valid, test, unit="word", source="random")


@contextlib.contextmanager
def _float64() -> Iterator[None]:
    # A corpus and its models are made inside: all have this type.
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _is_noisy(model: LanguageModel) -> bool:
    tokens, lengths = batch(model.task)
    model.train()
    losses = set()
    for seed in range(5):
        with seeded(seed), torch.no_grad():
            loss = training_loss(model, tokens, lengths)
        losses.add(float(loss))
    # Equal losses with all seeds mean that nothing is drawn.
    return len(losses) > 1


class CountingRecorder(OperationRecorder):
    """Counts replays."""

    replays = 0

    def record(self, work: Work) -> Work:
        replay = super().record(work)

        def counted():
            self.replays += 1
            replay()

        return counted


def law_replay_equals_execution(model: LanguageModel):
    """Losses and weights are equal bit by bit."""
    if reason_not_packable(model):
        return
    recorder = CountingRecorder()
    # Each step runs as it was written.
    executed = _train(model, lambda: None)
    replayed = _train(model, lambda: recorder)
    assert recorder.replays > 0, "no step was replayed"
    # Bit for bit, because the same operations run in the same order.
    for expected, actual in zip(executed, replayed, strict=True):
        for key in ("train_token", "valid_token"):
            assert actual.record[key] == expected.record[key], f"{key} differs"
        weights = actual.model.state_dict()
        for name, weight in expected.model.state_dict().items():
            assert torch.equal(weights[name], weight), f"{name} differs"


def _train(
    model: LanguageModel, recorder: Callable[[], OperationRecorder | None]
) -> list[Training]:
    members = [new_training(model, seed, recipe) for seed, recipe in enumerate(REPLAYED)]
    with mock.patch.object(pack_trainer, "OperationRecorder", recorder):
        list(KeptTrainers().fit(members, random_corpus(model), EPOCHS))
    return members
