"""Each law detects its fault: a correct toy model obeys all laws, a faulty one is detected."""

import pytest
import torch
from torch import Tensor

from lmzoo.contract import Score, Task
from lmzoo.laws import Law, conditional, density, every_model, extremes, laws_of, objectives
from lmzoo.laws_of_training import laws_for, packing
from tests import faults
from tests.tiny import SAME
from tests.toy_model import Bigram, toy

FAULTS: list[tuple[type[Bigram], Law]] = [
    (faults.SeesTargetToken, density.law_sums_to_one),
    (faults.SeesTargetToken, density.law_causal),
    (faults.SeesFutureTokens, density.law_causal),
    (faults.SeesFutureTokensInTraining, density.law_causal),
    (faults.ScoresWithoutSoftmax, density.law_sums_to_one),
    (faults.DecodesWithoutSoftmax, density.law_next_is_a_distribution),
    (faults.DecodesFromBatchMean, density.law_next_is_a_distribution),
    (faults.DecodesFromFirstToken, density.law_log_prob_equals_next_log_prob),
    (faults.AdvanceIgnoresToken, density.law_advance_equals_next_log_prob),
    (faults.AdvanceChangesItsState, density.law_advance_equals_next_log_prob),
    (faults.StateIsNotATensor, density.law_advance_equals_next_log_prob),
    (faults.PrefersTheLeastProbable, density.law_most_probable_is_the_argmax),
    (faults.AddsRandomNoise, density.law_scores_are_deterministic),
    (faults.TransposesScores, every_model.law_scores_have_shape),
    (faults.ScoresPadding, every_model.law_scores_have_shape),
    (faults.ReadsPadding, every_model.law_padding_is_ignored),
    (faults.DependsOnPaddedLength, every_model.law_padding_is_ignored),
    (faults.AddsBatchMean, every_model.law_rows_are_independent),
    (faults.AddsBatchMeanInTraining, every_model.law_rows_are_independent),
    (faults.DependsOnRowIndex, every_model.law_rows_are_independent),
    (faults.PosteriorSumsToTwo, every_model.law_posterior_is_a_distribution),
    (faults.HasUnusedLayer, every_model.law_every_parameter_learns),
    (faults.HasCancellingBias, every_model.law_every_parameter_learns),
    (faults.HasUnusedLayer, every_model.law_unused_parameters_are_declared),
    (faults.CarriesThePrefix, every_model.law_state_has_the_declared_size),
    (faults.DecodesWithoutSoftmax, extremes.law_no_log_probability_exceeds_zero),
    (faults.FloorsItsScores, extremes.law_large_weights_agree),
    (faults.NeedsFloat32, extremes.law_runs_in_half_precision),
    (faults.HasReversedGradient, every_model.law_overfits_one_sequence),
    (faults.HasWeightOutsideStateDict, every_model.law_checkpoint_is_exact),
    (faults.HasUndrawnWeight, every_model.law_seed_decides_the_weights),
    (faults.DrawsFromClock, every_model.law_seed_decides_the_weights),
    (faults.HasConstantOnCpu, every_model.law_computes_on_its_device),
    (faults.DependsOnPaddedLength, packing.law_packed_equals_alone),
    (faults.AddsBatchMeanInTraining, packing.law_packed_equals_alone),
    (faults.DependsOnCallCount, packing.law_replay_equals_execution),
    (faults.IgnoresSeed, every_model.law_seed_decides_the_weights),
    (faults.AcceptsAnyValue, every_model.law_config_rejects_wrong_values),
    (faults.ConfigChangesWhenLoaded, every_model.law_config_survives_json),
]
SourceBigram = faults.SourceBigram
CONDITIONAL_FAULTS: list[tuple[type[Bigram], Law]] = [
    (faults.SumsToMoreAfterLongSources, conditional.law_sums_to_one_given_any_source),
    (faults.ReadsFirstSourceTokenOnly, conditional.law_source_is_read),
    (faults.AcceptsMissingSource, conditional.law_source_is_read),
    (faults.ReadsSourcePadding, conditional.law_source_padding_is_ignored),
    (faults.DependsOnPaddedSourceLength, conditional.law_source_padding_is_ignored),
    (faults.AveragesSourcesOverTheBatch, conditional.law_source_belongs_to_its_row),
    (faults.DecodesFromFirstRowsSource, conditional.law_source_belongs_to_its_row),
]


@pytest.mark.parametrize(
    ("cls", "law"), [(cls, law) for cls in (Bigram, SourceBigram) for law in laws_for(cls)]
)
def test_a_correct_model_obeys_every_law(cls: type[Bigram], law: Law) -> None:
    law(toy(cls))


@pytest.mark.parametrize(("cls", "law"), FAULTS + CONDITIONAL_FAULTS)
def test_a_fault_is_detected(cls: type[Bigram], law: Law) -> None:
    with pytest.raises(AssertionError):
        law(toy(cls))


def test_every_law_has_a_fault_that_violates_it() -> None:
    assert {law for _, law in FAULTS} == set(laws_for(Bigram))
    conditional_laws = set(laws_of(conditional))
    assert {law for _, law in CONDITIONAL_FAULTS} == conditional_laws <= set(laws_for(SourceBigram))


def test_an_unconditional_model_ignores_sources() -> None:
    model = Bigram(Bigram.Config(), Task(vocab=3, length=4))
    tokens, lengths = torch.ones(2, 4, dtype=torch.int64), torch.full((2,), 4)
    alone = model.log_prob(tokens, lengths)
    with_source = model.log_prob(tokens, lengths, tokens[:, 1:], lengths - 1)
    assert (alone - with_source).abs().max() < SAME
    assert model.conditioning_inputs((tokens,)) == ()


def test_density_laws_apply_to_causal_densities_only() -> None:
    class Reconstruction(Bigram):
        score = Score.RECONSTRUCTION

    class Backward(Bigram):
        causal = False

    exact, backward, reconstruction = (
        set(laws_for(cls)) for cls in (Bigram, Backward, Reconstruction)
    )
    left_to_right = {
        density.law_causal,
        density.law_log_prob_equals_next_log_prob,
        density.law_advance_equals_next_log_prob,
        density.law_most_probable_is_the_argmax,
        extremes.law_large_weights_agree,
    }
    assert exact - backward == left_to_right
    assert exact - reconstruction == {*laws_of(density), extremes.law_large_weights_agree}


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
def test_a_correct_objective_obeys_its_laws(law: Law) -> None:
    law(toy(ScaledObjective))


def test_a_faulty_objective_is_detected() -> None:
    with pytest.raises(AssertionError, match="take the loss from"):
        objectives.law_training_raises_the_objective(toy(ReversedObjective))
    with pytest.raises(AssertionError, match="unscored"):
        objectives.law_objective_is_zero_where_unscored(toy(ScoresEveryPosition))


def test_objective_laws_apply_to_models_with_an_objective_only() -> None:
    class OnlyAnObjective(ScaledObjective):
        score = Score.OBJECTIVE

    assert not set(laws_of(objectives)) & set(laws_for(Bigram))
    assert set(laws_of(objectives)) <= set(laws_for(ScaledObjective))
    dropped = set(laws_for(ScaledObjective)) - set(laws_for(OnlyAnObjective))
    assert every_model.law_overfits_one_sequence in dropped
    assert set(laws_of(objectives)) <= set(laws_for(OnlyAnObjective))
