"""Each law detects its fault: a correct toy model obeys all laws, a faulty one is detected."""

import pytest
import torch
from torch import Tensor

from lmzoo.contract import Score, Task
from lmzoo.laws import Law, density, every_model, extremes, laws_of, objectives
from lmzoo.laws_of_training import laws_for
from tests import faults
from tests.tiny import SAME
from tests.toy_model import Bigram, toy

SourceBigram = faults.SourceBigram
FAULTS = [fault for fault in vars(faults).values() if "`law_" in str(getattr(fault, "__doc__", ""))]
"""The classes of `faults.py`, whose docstrings name the laws that they violate."""


def violated(cls: type[Bigram]) -> list[Law]:
    return [law for law in laws_for(cls) if f"`{law.__name__}`" in str(cls.__doc__)]


@pytest.mark.parametrize("law", laws_for(Bigram))
def test_a_correct_model_obeys_every_law(law):
    law(toy(Bigram))


@pytest.mark.parametrize("law", laws_for(SourceBigram))
def test_a_correct_model_of_sources_obeys_every_law(law):
    law(toy(SourceBigram))


@pytest.mark.parametrize("cls", FAULTS)
def test_a_fault_is_detected_by_the_laws_that_it_names(cls):
    named = violated(cls)
    # Or a docstring names a law that does not apply.
    assert len(named) == str(cls.__doc__).count("`law_")
    for law in named:
        with pytest.raises(AssertionError):
            law(toy(cls))


def test_every_law_has_a_fault_that_violates_it():
    found = set()
    for fault in FAULTS:
        found |= set(violated(fault))
    assert found == set(laws_for(Bigram)) | set(laws_for(SourceBigram))


def test_an_unconditional_model_ignores_sources():
    task = Task(vocab=3, length=4)
    model = Bigram(Bigram.Config(), task)
    tokens = torch.ones(2, 4).long()
    lengths = torch.full((2,), 4)
    alone = model.log_prob(tokens, lengths)
    with_source = model.log_prob(tokens, lengths, tokens[:, 1:], lengths - 1)
    difference = alone - with_source
    assert difference.abs().max() < SAME
    assert model.conditioning_inputs((tokens,)) == ()


def test_density_laws_apply_to_causal_densities_only():
    class Reconstruction(Bigram):
        score = Score.RECONSTRUCTION

    class Backward(Bigram):
        causal = False

    exact = set(laws_for(Bigram))
    backward = set(laws_for(Backward))
    reconstruction = set(laws_for(Reconstruction))
    left_to_right = {
        density.law_causal,
        density.law_log_prob_equals_next_log_prob,
        density.law_advance_equals_next_log_prob,
        density.law_most_probable_is_the_argmax,
        extremes.law_large_weights_agree,
    }
    assert exact - backward == left_to_right
    # Large weights show whether probabilities stay probabilities.
    of_densities = set(laws_of(density)) | {extremes.law_large_weights_agree}
    assert exact - reconstruction == of_densities


class ScaledObjective(Bigram):
    def objective(self, tokens: Tensor, lengths: Tensor, *source: Tensor) -> Tensor:
        return 2 * self.log_prob(tokens, lengths)


class ReversedObjective(Bigram):
    def objective(self, tokens: Tensor, lengths: Tensor, *source: Tensor) -> Tensor:
        scores = self.log_prob(tokens, lengths)
        return 2 * scores.detach() - scores


class ScoresEveryPosition(Bigram):
    def objective(self, tokens: Tensor, lengths: Tensor, *source: Tensor) -> Tensor:
        return self.log_prob(tokens, lengths) - 1.0


@pytest.mark.parametrize("law", laws_of(objectives))
def test_a_correct_objective_obeys_its_laws(law):
    law(toy(ScaledObjective))


def test_a_reversed_objective_is_detected():
    model = toy(ReversedObjective)
    with pytest.raises(AssertionError, match="take the loss from"):
        objectives.law_training_raises_the_objective(model)


def test_an_objective_of_padding_is_detected():
    model = toy(ScoresEveryPosition)
    with pytest.raises(AssertionError, match="unscored"):
        objectives.law_objective_is_zero_where_unscored(model)


def test_objective_laws_apply_to_models_with_an_objective_only():
    class OnlyAnObjective(ScaledObjective):
        score = Score.OBJECTIVE

    laws = set(laws_of(objectives))
    scaled = set(laws_for(ScaledObjective))
    only = set(laws_for(OnlyAnObjective))
    assert laws.isdisjoint(laws_for(Bigram))
    assert laws <= scaled
    assert laws <= only
    assert every_model.law_overfits_one_sequence in scaled - only
