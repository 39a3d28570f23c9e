"""Each law catches the fault it is for: an honest toy obeys all, a spoilt one is caught."""

import pytest

from lmzoo.contract import Score
from tests import faults
from tests.laws import (
    Law,
    batching,
    density,
    fusing,
    laws_for,
    laws_of,
    learning,
    making,
    replaying,
    stepping,
)
from tests.tiny import tiny

FAULTS: list[tuple[type[faults.Bigram], Law]] = [
    (faults.SeesItself, density.law_sums_to_one),
    (faults.SeesItself, density.law_causal),
    (faults.SeesTheFuture, density.law_causal),
    (faults.SeesTheFutureInTraining, density.law_causal),
    (faults.ForgetsTheSoftmax, density.law_sums_to_one),
    (faults.DecodesWithoutSoftmax, density.law_next_is_a_distribution),
    (faults.DecodesFromTheBatch, density.law_next_is_a_distribution),
    (faults.DecodesAnotherToken, density.law_scores_agree),
    (faults.ForgetsWhereItStands, stepping.law_steps_agree),
    (faults.CountsItsSteps, stepping.law_steps_agree),
    (faults.StaysWithTheRow, stepping.law_steps_agree),
    (faults.Draws, density.law_answers_twice_alike),
    (faults.Transposes, batching.law_scores_have_shape),
    (faults.ScoresPads, batching.law_scores_have_shape),
    (faults.ReadsPads, batching.law_padding_is_ignored),
    (faults.CountsPads, batching.law_padding_is_ignored),
    (faults.AveragesTheBatch, batching.law_rows_are_independent),
    (faults.AveragesTheBatchInTraining, batching.law_rows_are_independent),
    (faults.MovesWithTheRow, batching.law_rows_are_independent),
    (faults.MisjudgesItsLatent, batching.law_posterior_is_a_distribution),
    (faults.HasADeadLayer, learning.law_every_parameter_learns),
    (faults.HasABiasThatCancels, learning.law_every_parameter_learns),
    (faults.LearnsBackwards, learning.law_overfits_one_sequence),
    (faults.KeepsAStateAside, making.law_checkpoint_is_exact),
    (faults.OwnsAnUndrawnWeight, making.law_seed_decides_the_weights),
    (faults.DrawsFromTheClock, making.law_seed_decides_the_weights),
    (faults.KeepsAConstantBehind, making.law_computes_where_its_weights_are),
    (faults.CountsPads, fusing.law_fused_equals_alone),
    (faults.AveragesTheBatchInTraining, fusing.law_fused_equals_alone),
    (faults.HeatsUpAsItGoes, replaying.law_replayed_equals_done),
    (faults.StartsAlwaysTheSame, making.law_seed_decides_the_weights),
    (faults.AcceptsNonsense, making.law_config_refuses_nonsense),
    (faults.CountsUpWhenRead, making.law_config_survives_json),
]


@pytest.mark.parametrize("law", laws_for(faults.Bigram))
def test_an_honest_toy_obeys_every_law(law: Law) -> None:
    law(faults.toy(faults.Bigram))


@pytest.mark.parametrize(("cls", "law"), FAULTS)
def test_a_planted_fault_is_caught(cls: type[faults.Bigram], law: Law) -> None:
    with pytest.raises(AssertionError):
        law(faults.toy(cls))


def test_every_law_has_a_fault_that_breaks_it() -> None:
    assert {law for _, law in FAULTS} == set(laws_for(faults.Bigram))


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "mgu", "mgru"])
def test_the_published_normaliser_leaks_and_says_so(cell: str) -> None:
    model = tiny("recurrent_lm", cell=cell, norm="time_std")
    assert "time_std" in model.leaks
    with pytest.raises(AssertionError):
        density.law_causal(model)
    with pytest.raises(AssertionError):
        density.law_sums_to_one(model)


def test_a_cell_blind_to_its_input_leaks_nothing() -> None:
    model = tiny("recurrent_lm", cell={"name": "mgu", "cuts": [0, 3]}, norm="time_std")
    assert not model.leaks
    density.law_causal(model)


def test_only_a_causal_density_must_be_one() -> None:
    class Reconstruction(faults.Bigram):
        score = Score.RECONSTRUCTION

    class Backward(faults.Bigram):
        causal = False

    claimed = [set(laws_for(cls)) for cls in (faults.Bigram, Backward, Reconstruction)]
    left_to_right = {density.law_causal, density.law_scores_agree, *laws_of(stepping)}
    assert claimed[0] - claimed[1] == left_to_right
    assert claimed[0] - claimed[2] == {*laws_of(density), *laws_of(stepping)}
