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


def setting(rate, width):
    return {"recipe.lr": rate, "model.width": width, "model.norm": "l2"}


DESIGN = [setting(0.01, 8), setting(0.01, 20), setting(0.01, 40), setting(0.1, 60)]
# gp takes seconds a suggestion; test_decisions.py has it in every run.
FAST = [name for name in SAMPLERS if name != "gp"]
names = pytest.mark.parametrize("name", [*FAST, pytest.param("gp", marks=pytest.mark.slow)])


def new_search(sampler="tpe", *, space=SPACE, seed=1, lag=2, design=0) -> Search:
    study = dataclasses.replace(STUDY, sampler=sampler)
    return Search(space, make_sampler(study, space, seed), lag, design)


def loss(setting: dict) -> float:
    of_rate = (math.log10(setting["recipe.lr"]) + 2) ** 2
    return of_rate + setting["model.width"] / 100


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


@names
def test_suggestions_differ_and_are_inside(name):
    settings = run(new_search(name), 12)
    assert len({str(setting) for setting in settings}) > 6
    for setting in settings:
        assert 1e-3 <= setting["recipe.lr"] <= 1e-1
        assert setting["model.width"] in range(8, 65)
        assert setting["model.norm"] in ("rms", "l2")


@names
def test_a_restart_knows_settings_that_the_sampler_did_not_suggest(name):
    """The sampler receives the results of the start design at once, also of runs that stopped."""
    settings = run(new_search(name, design=4), 8, DESIGN)
    assert settings[:4] == DESIGN
    assert run(None, 8, DESIGN, restart=lambda: new_search(name, design=4)) == settings


@names
def test_another_seed_has_other_suggestions(name):
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


OBJECTS = [
    optuna.samplers.TPESampler(seed=5, n_startup_trials=3),
    optuna.samplers.RandomSampler(seed=5),
]
CLASSES = [
    functools.partial(optuna.samplers.TPESampler, n_startup_trials=3),
    optuna.samplers.RandomSampler,
]


@pytest.mark.parametrize("sampler", OBJECTS + CLASSES)
def test_a_restart_does_not_change_the_suggestions_of_a_sampler_of_the_user(sampler):
    undisturbed = run(new_search(sampler), 8)
    assert run(None, 8, restart=lambda: new_search(sampler)) == undisturbed
    assert len({str(setting) for setting in undisturbed}) == 8


@pytest.mark.parametrize("sampler", OBJECTS)
def test_a_sampler_of_the_user_keeps_its_seed(sampler):
    assert run(new_search(sampler, seed=2), 8) == run(new_search(sampler), 8)


@pytest.mark.parametrize("sampler", CLASSES)
def test_a_class_of_samplers_gets_the_seed_of_the_study(sampler):
    assert run(new_search(sampler, seed=2), 8) != run(new_search(sampler), 8)


@pytest.mark.parametrize("wrong", ["bohb", 3, None, dict])
def test_an_unknown_sampler_is_named(wrong):
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


EARLIER = curves([1.0, 2.0, 3.0, 4.0])
BEST = {1: 0.5}
WORST = {1: 5.0}


@pytest.mark.parametrize(
    ("pruner", "curve", "earlier", "stops"),
    [
        ("halving", BEST, EARLIER, False),
        ("halving", WORST, EARLIER, True),
        ("halving", WORST, [], False),
        ("none", WORST, EARLIER, False),
    ],
)
def test_a_pruner_stops_the_worst_of_many(pruner, curve, earlier, stops):
    rule = make_pruner(dataclasses.replace(PRUNED, pruner=pruner))
    assert rule.prunes(1, curve, earlier) == stops


class Mine:
    def prunes(self, epoch, curve, earlier):
        return epoch == 2


def test_an_object_with_the_method_is_a_pruner():
    mine = Mine()
    assert make_pruner(dataclasses.replace(PRUNED, pruner=mine)) is mine


@pytest.mark.parametrize("wrong", ["hyperband", 3, Asha, None])
def test_what_is_no_pruner_is_refused_in_one_line(wrong):
    with pytest.raises(UserError, match=r"^no pruner .*asha, halving, none") as caught:
        make_pruner(dataclasses.replace(PRUNED, pruner=wrong))
    assert "\n" not in str(caught.value)
