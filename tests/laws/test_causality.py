"""The audit detects each kind of fault with the right check and passes valid models."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.contract import LanguageModel, Score
from lmzoo.laws import causality
from lmzoo.laws.causality import TOLERANCE, audit, with_published_norm
from tests import faults
from tests.tiny import row_names
from tests.toy_model import Bigram


class ReadsPadding(Bigram):
    """Adds a term that depends on the last column, which can be padding."""

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.table(tokens[:, :-1]) + self.table(tokens[:, -1:])


class ReadsBatchMates(Bigram):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.table(tokens[:, :-1]) + self.table(tokens[:, :-1]).mean(0, keepdim=True)


class HiddenLeak(faults.SeesFutureTokens):
    """Reads the next token through a weight that starts at zero."""

    def __init__(self, config: Any, task: Any) -> None:
        super().__init__(config, task)
        self.leak = torch.nn.Parameter(torch.zeros(1))

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        later = self.table(tokens.roll(-1, 1)[:, 1:])
        return self.table(tokens[:, :-1]) + self.leak * later


class UnnormalisedTotal(faults.ScoresWithoutSoftmax):
    """Not causal, and the probabilities of all sequences do not sum to 1."""

    causal = False


@pytest.fixture
def audit_toy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Audit a toy class instead of a registered row."""

    def audit_class(toy: type[LanguageModel]) -> causality.Audit:
        def build(config: Any, task: Any, seed: int) -> LanguageModel:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return toy(config, task)

        monkeypatch.setattr(causality.zoo, "build", build)
        return audit(toy.Config())

    return audit_class


def test_a_valid_model_passes(audit_toy: Any) -> None:
    result = audit_toy(Bigram)
    assert result.faults == ()
    assert max(result.future, result.itself, result.pads, result.mates) <= TOLERANCE
    assert result.total is None


@pytest.mark.parametrize(
    ("toy", "check"),
    [
        (faults.SeesFutureTokens, "future"),
        (faults.SeesFutureTokensInTraining, "future"),
        (HiddenLeak, "future"),
        (faults.SeesTargetToken, "itself"),
        (faults.ScoresWithoutSoftmax, "itself"),
        (UnnormalisedTotal, "total"),
        (ReadsPadding, "pads"),
        (ReadsBatchMates, "mates"),
    ],
)
def test_each_fault_is_detected_by_its_check(audit_toy: Any, toy: Any, check: str) -> None:
    result = audit_toy(toy)
    assert getattr(result, check) > 1e-3
    assert f"{getattr(result, check):.2g}" in " ".join(result.faults)


def test_nan_scores_are_a_fault(audit_toy: Any) -> None:
    class Nan(Bigram):
        def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
            return self.table(tokens[:, :-1]) * torch.nan

    assert audit_toy(Nan).itself == torch.inf


@pytest.mark.parametrize("name", row_names())
def test_every_row_passes(name: str) -> None:
    result = audit(zoo.config(name))
    assert result.faults == ()
    score = zoo.row(name).score
    is_density = score in (Score.EXACT, Score.CONDITIONAL)
    assert (result.total is None and result.future is None) != is_density


LEAKED_IN_S0 = (22, 23, 26, 29, 43, 44, 46, 47, 50, 51, 52, 53, 54)
"""Numbers of the models of S0 whose published code depends on later tokens."""

LEAKING = {zoo.row(f"DLM{n}").name for n in LEAKED_IN_S0}
OTHERS = {n for n in row_names() if with_published_norm(zoo.config(n)) is not None} - LEAKING
"""Rows that S0 did not run with this normalisation, and that leak with it too."""


@pytest.mark.parametrize("name", sorted(LEAKING | OTHERS))
def test_every_published_leak_is_detected_and_declared(name: str) -> None:
    leaking = with_published_norm(zoo.config(name))
    assert leaking is not None
    assert audit(leaking).faults
    assert zoo.build(leaking, causality.TASK).leaks


def test_a_model_that_ignores_its_inputs_cannot_leak() -> None:
    blind = zoo.config("DLM46", norm="time_std", cell={"cuts": [0, 3]})
    assert audit(blind).faults == ()
