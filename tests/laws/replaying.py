"""A pack's steps, replayed from a tape, end where the same steps end when they are done."""

from collections.abc import Callable
from unittest import mock

import torch

from lmzoo.contract import LanguageModel
from lmzoo.train.capture.recorder import Work
from lmzoo.train.packed import trainer as together
from lmzoo.train.packed.recorder import OperationRecorder
from lmzoo.train.packed.shapes import reason_not_packable
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training
from tests.laws.fusing import member, random_corpus

RECIPES = (Recipe(batch=5, lr=1e-2, warmup=3), Recipe(batch=5, lr=3e-3, clip=0.1))
EPOCHS = 4


class Counted(OperationRecorder):
    """Tapes that count what is replayed."""

    replays = 0

    def record(self, work: Work) -> Work:
        replay = super().record(work)

        def counted() -> None:
            self.replays += 1
            replay()

        return counted


def law_replayed_equals_done(model: LanguageModel) -> None:
    """The same bits, whatever the model does between two operations of torch."""
    if reason_not_packable(model):
        return
    tapes = Counted()
    done, replayed = _trained(model, lambda: None), _trained(model, lambda: tapes)
    assert tapes.replays > 0, "no step was replayed"
    for one, other in zip(done, replayed, strict=True):
        assert (one.record["train_token"], one.record["valid_token"]) == (
            other.record["train_token"],
            other.record["valid_token"],
        )
        found = other.model.state_dict()
        for name, weight in one.model.state_dict().items():
            assert torch.equal(found[name], weight), f"{name} differs"


def _trained(model: LanguageModel, tapes: Callable[[], OperationRecorder | None]) -> list[Training]:
    members = [member(model, i, recipe) for i, recipe in enumerate(RECIPES)]
    with mock.patch.object(together, "Tapes", tapes):
        list(together.fit_packed(members, random_corpus(model), EPOCHS))
    return members
