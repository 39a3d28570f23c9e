"""A pack whose steps are replayed ends training with the same bits as one whose steps are not."""

from collections.abc import Callable
from unittest import mock

import torch

from lmzoo.contract import LanguageModel
from lmzoo.laws_of_training.packing import new_training, random_corpus
from lmzoo.train import pack_trainer
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.pack_compatibility import reason_not_packable
from lmzoo.train.pack_recorder import OperationRecorder
from lmzoo.train.recipe import Recipe, Schedule
from lmzoo.train.recorder import Work
from lmzoo.train.trainer import Training

EPOCHS = 3
RECIPES = (
    Recipe(batch=5, lr=1e-2, warmup=3),
    Recipe(batch=5, lr=3e-3, clip=0.1, schedule=Schedule.LINEAR, schedule_epochs=EPOCHS),
)


class CountingRecorder(OperationRecorder):
    """Counts replays."""

    replays = 0

    def record(self, work: Work) -> Work:
        replay = super().record(work)

        def counted() -> None:
            self.replays += 1
            replay()

        return counted


def law_replay_equals_execution(model: LanguageModel) -> None:
    """Losses and weights are equal bit by bit."""
    if reason_not_packable(model):
        return
    recorder = CountingRecorder()
    executed, replayed = _train(model, lambda: None), _train(model, lambda: recorder)
    assert recorder.replays > 0, "no step was replayed"
    for expected, actual in zip(executed, replayed, strict=True):
        for key in ("train_token", "valid_token"):
            assert actual.record[key] == expected.record[key], f"{key} differs"
        weights = actual.model.state_dict()
        for name, weight in expected.model.state_dict().items():
            assert torch.equal(weights[name], weight), f"{name} differs"


def _train(
    model: LanguageModel, recorder: Callable[[], OperationRecorder | None]
) -> list[Training]:
    members = [new_training(model, i, recipe) for i, recipe in enumerate(RECIPES)]
    with mock.patch.object(pack_trainer, "OperationRecorder", recorder):
        list(KeptTrainers().fit(members, random_corpus(model), EPOCHS))
    return members
