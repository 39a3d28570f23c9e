"""The audit catches each planted fault by its own question, and passes what is honest."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.audit import causality
from lmzoo.audit.causality import TOLERANCE, audit, published
from lmzoo.contract import LanguageModel, Score
from tests import faults
from tests.tiny import rows


class ReadsPads(faults.Bigram):
    """The mean of the whole row, padding too, is added: what time_std does, made plain."""

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.table(tokens[:, :-1]) + self.table(tokens[:, -1:])


class ReadsMates(faults.Bigram):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.table(tokens[:, :-1]) + self.table(tokens[:, :-1]).mean(0, keepdim=True)


class OpensWhenTrained(faults.SeesTheFuture):
    """Its way to the future is shut by a weight that starts at zero."""

    def __init__(self, config: Any, task: Any) -> None:
        super().__init__(config, task)
        self.door = torch.nn.Parameter(torch.zeros(1))

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        later = self.table(tokens.roll(-1, 1)[:, 1:])
        return self.table(tokens[:, :-1]) + self.door * later


class Whole(faults.ForgetsTheSoftmax):
    """Claims its totals only, and they do not add up either."""

    causal = False


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Audit a toy class: the zoo builds it."""

    def question(toy: type[LanguageModel]) -> causality.Audit:
        def build(config: Any, task: Any, seed: int) -> LanguageModel:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return toy(config, task)

        monkeypatch.setattr(causality.zoo, "build", build)
        return audit(toy.Config())

    return question


def test_the_honest_toy_passes(audited: Any) -> None:
    found = audited(faults.Bigram)
    assert found.faults == ()
    assert max(found.future, found.itself, found.pads, found.mates) <= TOLERANCE
    assert found.total is None


@pytest.mark.parametrize(
    ("toy", "question"),
    [
        (faults.SeesTheFuture, "future"),
        (faults.SeesTheFutureInTraining, "future"),
        (OpensWhenTrained, "future"),
        (faults.SeesItself, "itself"),
        (faults.ForgetsTheSoftmax, "itself"),
        (Whole, "total"),
        (ReadsPads, "pads"),
        (ReadsMates, "mates"),
    ],
)
def test_each_fault_is_found_by_its_question(audited: Any, toy: Any, question: str) -> None:
    found = audited(toy)
    assert getattr(found, question) > 1e-3
    assert any(said in " ".join(found.faults) for said in (f"{getattr(found, question):.2g}",))


def test_a_nan_is_a_fault(audited: Any) -> None:
    class Nan(faults.Bigram):
        def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
            return self.table(tokens[:, :-1]) * torch.nan

    assert audited(Nan).itself == torch.inf


@pytest.mark.parametrize("name", rows())
def test_every_row_passes(name: str) -> None:
    found = audit(zoo.config(name))
    assert found.faults == ()
    score = zoo.row(name).score
    claims = score in (Score.EXACT, Score.CONDITIONAL)
    assert (found.total is None and found.future is None) != claims


LEAKED_IN_S0 = (22, 23, 26, 29, 43, 44, 46, 47, 50, 51, 52, 53, 54)
"""The numbers of the seed's models whose published code sees the future."""

LEAKING = {zoo.row(f"DLM{n}").name for n in LEAKED_IN_S0}
OTHERS = {n for n in rows() if published(zoo.config(n)) is not None} - LEAKING
"""Rows that the seed did not run so, and that leak the same way when they are."""


@pytest.mark.parametrize("name", sorted(LEAKING | OTHERS))
def test_every_published_leak_is_named(name: str) -> None:
    leaking = published(zoo.config(name))
    assert leaking is not None
    assert audit(leaking).faults
    assert zoo.build(leaking, causality.TASK).leaks


def test_an_input_blind_model_cannot_leak() -> None:
    blind = zoo.config("DLM46", norm="time_std", cell={"cuts": [0, 3]})
    assert audit(blind).faults == ()
