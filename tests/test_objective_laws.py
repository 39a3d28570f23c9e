"""The laws of models with an objective of their own can fail."""

import pytest
from torch import Tensor

from lmzoo.contract import Score
from tests import faults
from tests.laws import Law, laws_for, laws_of, learning, objectives


class Rises(faults.Bigram):
    def objective(self, tokens: Tensor, lengths: Tensor, *given: Tensor) -> Tensor:
        return 2 * self.log_prob(tokens, lengths)


class Falls(faults.Bigram):
    def objective(self, tokens: Tensor, lengths: Tensor, *given: Tensor) -> Tensor:
        scores = self.log_prob(tokens, lengths)
        return 2 * scores.detach() - scores


class CountsEverything(faults.Bigram):
    def objective(self, tokens: Tensor, lengths: Tensor, *given: Tensor) -> Tensor:
        return self.log_prob(tokens, lengths) - 1.0


@pytest.mark.parametrize("law", laws_of(objectives))
def test_an_honest_objective_obeys(law: Law) -> None:
    law(faults.toy(Rises))


def test_a_planted_fault_is_caught() -> None:
    with pytest.raises(AssertionError, match="take the cost from"):
        objectives.law_training_raises_the_objective(faults.toy(Falls))
    with pytest.raises(AssertionError, match="unscored"):
        objectives.law_objective_is_of_the_scored(faults.toy(CountsEverything))


def test_who_must_obey() -> None:
    class Objective(Rises):
        score = Score.OBJECTIVE

    assert not set(laws_of(objectives)) & set(laws_for(faults.Bigram))
    assert set(laws_of(objectives)) <= set(laws_for(Rises))
    dropped = set(laws_for(Rises)) - set(laws_for(Objective))
    assert learning.law_overfits_one_sequence in dropped
    assert set(laws_of(objectives)) <= set(laws_for(Objective))
