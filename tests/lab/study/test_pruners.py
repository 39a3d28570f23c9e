"""Pruners: their rules, and pruners of Optuna and of the user."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.tune.schedulers.async_hyperband import _Bracket

from lmzoo import Point, Study
from lmzoo.base.errors import UserError
from lmzoo.lab.study.pruners import Asha, make_pruner, rungs

LOSSES = st.lists(st.floats(0, 10), min_size=1, max_size=12)
STUDY = Study(name="s", question="?", points=(Point("one", "DLM46"),), epochs=9, grace=1)


def curves(losses: list[float]) -> list[dict[int, float]]:
    return [{1: loss} for loss in losses]


def test_rungs_are_geometric_and_below_the_budget():
    """By default a run may stop at half of its epochs."""
    by_default = ((1, ()), (2, (1,)), (10, (5,)), (12, (6,)), (60, (30,)))
    for grace, reduction, epochs, expected in [
        *((2, 3, 20, (2, 6, 18)), (2, 3, 18, (2, 6)), (4, 2, 3, ())),
        *((0, 2, *case) for case in by_default),
    ]:
        study = dataclasses.replace(STUDY, grace=grace, reduction=reduction, epochs=epochs)
        assert rungs(study) == expected


@given(LOSSES, st.integers(2, 4))
def test_asha_with_settings_one_after_the_other_equals_ray_tunes(losses, reduction):
    bracket = _Bracket(min_t=1, max_t=2, reduction_factor=reduction, s=0)
    for i, loss in enumerate(losses):
        theirs = bracket.on_result(SimpleNamespace(trial_id=str(i)), 1, -loss)
        ours = Asha((1,), reduction).prunes(1, {1: loss}, curves(losses[:i]))
        cutoff = np.percentile(losses[:i], 100 / reduction) if i else np.inf
        if not np.isclose(loss, cutoff, rtol=1e-9):  # rounding decides a tie
            assert ours == (theirs != "CONTINUE")


@given(LOSSES, st.randoms())
@pytest.mark.parametrize("name", ["asha", "halving", "median"])
def test_the_order_of_earlier_settings_does_not_matter(name, losses, shuffler):
    pruner = make_pruner(dataclasses.replace(STUDY, pruner=name))
    shuffled = losses[1:]
    shuffler.shuffle(shuffled)
    answers = [pruner.prunes(1, {1: losses[0]}, curves(x)) for x in (losses[1:], shuffled)]
    assert answers[0] == answers[1]
    earlier = curves([1.0, 2.0, 3.0, 4.0])
    assert not pruner.prunes(1, {1: 0.5}, earlier), "the best"
    assert pruner.prunes(1, {1: 5.0}, earlier), "the worst of many"
    assert not pruner.prunes(1, {1: 5.0}, [])


def complete(*losses: float) -> list[dict[int, float]]:
    return [{epoch: loss for epoch in range(1, 10)} for loss in losses]


@pytest.mark.parametrize(
    "theirs",
    [
        optuna.pruners.MedianPruner(n_startup_trials=2),
        optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
        optuna.pruners.ThresholdPruner(upper=4.0),
    ],
)
def test_a_pruner_of_optuna_sees_the_earlier_settings(theirs):
    pruner = make_pruner(dataclasses.replace(STUDY, pruner=theirs))
    assert not pruner.prunes(2, {1: 0.5, 2: 0.5}, complete(1.0, 2.0, 3.0))
    assert pruner.prunes(2, {1: 5.0, 2: 5.0}, complete(1.0, 2.0, 3.0))
    assert pruner.prunes(2, {1: 5.0, 2: 5.0}, complete(1.0, 2.0, 3.0)), "the same question again"


def test_an_object_with_the_method_is_a_pruner_and_others_are_refused_in_one_line():
    class Mine:
        def prunes(self, epoch, curve, earlier):
            return epoch == 2

    assert make_pruner(dataclasses.replace(STUDY, pruner=(mine := Mine()))) is mine
    for wrong in ("hyperband", 3, Asha, None):
        with pytest.raises(UserError, match=r"^no pruner .*asha, halving, median, none") as caught:
            make_pruner(dataclasses.replace(STUDY, pruner=wrong))
        assert "\n" not in str(caught.value)
