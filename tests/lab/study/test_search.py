"""Suggestions are a pure function of the results and improve with them; the rules of pruners."""

import dataclasses
import functools
import math
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.tune.schedulers.async_hyperband import _Bracket

from lmzoo import Point, Study
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.lab.study.search import SAMPLERS, Asha, Result, Search, make_pruner, make_sampler, rungs
from tests.cases import cases

SPACE = {
    "recipe.lr": FloatRange(1e-3, 1e-1, log=True),
    "model.width": IntRange(8, 64),
    "model.norm": Choice(("rms", "l2")),
}
STUDY = Study(name="s", question="?", points=(Point("one", "DLM46"),), samples=12)

WIDTHS = {8: 0.01, 20: 0.01, 40: 0.01, 60: 0.1}
DESIGN = [{"recipe.lr": x, "model.width": w, "model.norm": "l2"} for w, x in WIDTHS.items()]
names = pytest.mark.parametrize(
    "name",  # gp takes seconds a suggestion; test_decisions.py has it in every run
    [pytest.param(name, marks=[pytest.mark.slow] if name == "gp" else []) for name in SAMPLERS],
)


def new_search(sampler="tpe", *, space=SPACE, seed=1, lag=2, design=0) -> Search:
    study = dataclasses.replace(STUDY, sampler=sampler)
    return Search(space, make_sampler(study, space, seed), lag, design)


def loss(setting: dict) -> float:
    return (math.log10(setting["recipe.lr"]) + 2) ** 2 + setting["model.width"] / 100


def run(search: Search, count: int, settings=(), restart=None) -> list[dict]:
    """Return `count` settings after `settings`; `restart` replaces some searches."""
    settings = list(settings)

    def result(index: int) -> Result:
        assert index <= len(settings) - 2 or settings[index] in DESIGN, "it is not known yet"
        value = loss(settings[index])
        return Result(value, value > 1, {1: value + 1, 2: value})

    for _ in range(count):
        if restart and len(settings) % 4 == 0:
            search = restart()
        settings.append(search.suggest(settings, result))
    return settings


@names
def test_a_restart_does_not_change_the_suggestions(name):
    undisturbed = run(new_search(name), 12)
    assert run(None, 12, restart=lambda: new_search(name)) == undisturbed
    assert len({str(setting) for setting in undisturbed}) > 6
    for setting in undisturbed:
        assert 1e-3 <= setting["recipe.lr"] <= 1e-1
        assert setting["model.width"] in range(8, 65)
        assert setting["model.norm"] in ("rms", "l2")


@names
def test_settings_that_the_sampler_did_not_suggest_are_used_as_they_are(name):
    """The sampler receives the results of the start design at once, also of runs that stopped."""
    settings = run(new_search(name, design=4), 8, DESIGN)
    assert settings[:4] == DESIGN
    assert run(None, 8, DESIGN, restart=lambda: new_search(name, design=4)) == settings
    assert run(new_search(name), 4) != run(new_search(name, seed=2), 4)


def test_optuna_knows_how_the_runs_ended():
    search = new_search("random", design=4)
    known = run(search, 12, DESIGN)[:-2]
    *trials, before, last = search._study.get_trials()
    values = [loss(setting) for setting in known]
    assert [trial.params for trial in trials] == known
    for trial, value in zip(trials, values, strict=True):
        if value > 1:
            assert trial.state.name == "PRUNED"
            assert trial.intermediate_values == {1: value + 1, 2: value}
        else:
            assert trial.state.name == "COMPLETE"
            assert trial.values == [value]
            assert trial.intermediate_values == {}
    assert before.state == last.state == optuna.trial.TrialState.RUNNING
    assert any(value > 1 for value in values[4:])


@pytest.mark.parametrize(
    "sampler",
    [
        optuna.samplers.TPESampler(seed=5, n_startup_trials=3),
        optuna.samplers.RandomSampler(seed=5),
        functools.partial(optuna.samplers.TPESampler, n_startup_trials=3),
        optuna.samplers.RandomSampler,
    ],
)
def test_a_sampler_of_the_user(sampler):
    undisturbed = run(new_search(sampler), 8)
    assert run(None, 8, restart=lambda: new_search(sampler)) == undisturbed
    assert len({str(setting) for setting in undisturbed}) == 8
    seeds_matter = run(new_search(sampler, seed=2), 8) != undisturbed
    assert seeds_matter == callable(sampler)


def test_an_unknown_sampler_is_named():
    for wrong in ("bohb", 3, None, dict):
        with pytest.raises(UserError, match=r"^no sampler .*tpe, gp, random") as caught:
            new_search(wrong)
        assert "\n" not in str(caught.value)


LOSSES = st.lists(st.floats(0, 10), min_size=1, max_size=12)
PRUNED = Study(name="s", question="?", points=(Point("one", "DLM46"),), epochs=9, grace=1)


def curves(losses: list[float]) -> list[dict[int, float]]:
    return [{1: loss} for loss in losses]


@cases("lab/study/cases.toml", "rungs", "grace, reduction, epochs, expected")
def test_rungs_are_geometric_and_below_the_budget(grace, reduction, epochs, expected):
    """By default a run may stop at half of its epochs."""
    study = dataclasses.replace(PRUNED, grace=grace, reduction=reduction, epochs=epochs)
    assert list(rungs(study)) == expected


@given(LOSSES, st.integers(2, 4))
def test_asha_with_settings_one_after_the_other_equals_ray_tunes(losses, reduction):
    bracket = _Bracket(min_t=1, max_t=2, reduction_factor=reduction, s=0)
    for index, loss in enumerate(losses):
        earlier = losses[:index]
        theirs = bracket.on_result(SimpleNamespace(trial_id=str(index)), 1, -loss)
        ours = Asha((1,), reduction).prunes(1, {1: loss}, curves(earlier))
        cutoff = np.inf
        if earlier:
            cutoff = np.percentile(earlier, 100 / reduction)
        if not np.isclose(loss, cutoff, rtol=1e-9):  # rounding decides a tie
            assert ours == (theirs != "CONTINUE")


@given(LOSSES, st.randoms())
def test_the_order_of_earlier_settings_does_not_matter(losses, shuffler):
    pruner = make_pruner(PRUNED)
    shuffled = losses[1:]
    shuffler.shuffle(shuffled)
    answer = pruner.prunes(1, {1: losses[0]}, curves(losses[1:]))
    assert pruner.prunes(1, {1: losses[0]}, curves(shuffled)) == answer


def test_asha_stops_the_worst_and_none_stops_no_run():
    pruner = make_pruner(PRUNED)
    earlier = curves([1.0, 2.0, 3.0, 4.0])
    assert not pruner.prunes(1, {1: 0.5}, earlier), "the best"
    assert pruner.prunes(1, {1: 5.0}, earlier), "the worst of many"
    assert not pruner.prunes(1, {1: 5.0}, [])
    none = make_pruner(dataclasses.replace(PRUNED, pruner="none"))
    assert not none.prunes(1, {1: 5.0}, earlier)


def test_an_object_with_the_method_is_a_pruner_and_others_are_refused_in_one_line():
    class Mine:
        def prunes(self, epoch, curve, earlier):
            return epoch == 2

    mine = Mine()
    assert make_pruner(dataclasses.replace(PRUNED, pruner=mine)) is mine
    for wrong in ("hyperband", 3, Asha, None):
        with pytest.raises(UserError, match=r"^no pruner .*asha, halving, none") as caught:
            make_pruner(dataclasses.replace(PRUNED, pruner=wrong))
        assert "\n" not in str(caught.value)
