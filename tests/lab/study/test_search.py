"""Suggestions are a pure function of the results and improve with them; the rules of pruners."""

import functools
import math
from dataclasses import replace
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
from tests.cases import cases, rows

CASES = "lab/study/cases.toml"

SPACE = {
    "recipe.lr": FloatRange(1e-3, 1e-1, log=True),
    "model.width": IntRange(8, 64),
    "model.norm": Choice(("rms", "l2")),
}
POINTS = (Point("one", "DLM46"),)
STUDY = Study(name="s", question="?", points=POINTS, samples=12)
DESIGN = rows(CASES, "design")
# gp takes seconds a suggestion; test_decisions.py has it in every run.
SLOW = pytest.param("gp", marks=pytest.mark.slow)
FAST = sorted(SAMPLERS.keys() - {"gp"})
names = pytest.mark.parametrize("name", FAST + [SLOW])


def new_search(sampler="tpe", seed=1, design=0) -> Search:
    study = replace(STUDY, sampler=sampler)
    made = make_sampler(study, SPACE, seed)
    return Search(SPACE, made, 2, design)


def loss(setting: dict) -> float:
    decades = math.log10(setting["recipe.lr"]) + 2
    return decades**2 + setting["model.width"] / 100


def curve_of(value: float) -> dict[int, float]:
    return {1: value + 1, 2: value}


def run(search: Search, count: int, begin=(), restart=None) -> list[dict]:
    """Return `count` settings after those of the beginning; `restart` replaces some searches."""
    settings = list(begin)

    def result(index: int) -> Result:
        setting = settings[index]
        is_known = index <= len(settings) - 2
        assert is_known or setting in DESIGN, "it is not known yet"
        value = loss(setting)
        return Result(value, value > 1, curve_of(value))

    for _ in range(count):
        if restart and len(settings) % 4 == 0:
            search = restart()
        suggested = search.suggest(settings, result)
        settings.append(suggested)
    return settings


def assert_restarts_change_nothing(search, count, begin=()) -> list[dict]:
    """Return the settings of an undisturbed search."""
    settings = run(search(), count, begin)
    assert run(None, count, begin, search) == settings
    return settings


@names
def test_a_restart_does_not_change_the_suggestions(name):
    assert_restarts_change_nothing(lambda: new_search(name), 12)


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
    settings = assert_restarts_change_nothing(lambda: new_search(name, design=4), 8, DESIGN)
    assert settings[:4] == DESIGN


def suggestions_of(sampler, seed):
    search = new_search(sampler, seed)
    return run(search, 8)


@names
def test_another_seed_has_other_suggestions(name):
    assert suggestions_of(name, 1) != suggestions_of(name, 2)


def test_optuna_knows_how_the_runs_ended():
    search = new_search("random", design=4)
    known = run(search, 12, DESIGN)[:-2]
    *trials, before, last = search._study.get_trials()
    values = list(map(loss, known))
    assert [trial.params for trial in trials] == known
    for trial, value in zip(trials, values, strict=True):
        if value > 1:
            assert trial.state.name == "PRUNED"
            assert trial.intermediate_values == curve_of(value)
        else:
            assert trial.state.name == "COMPLETE"
            assert trial.values == [value]
            assert trial.intermediate_values == {}
    assert before.state == last.state == optuna.trial.TrialState.RUNNING
    suggested = values[4:]
    assert max(suggested) > 1, "no suggestion was pruned, so nothing was tested"


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
    settings = assert_restarts_change_nothing(lambda: new_search(sampler), 8)
    assert len({str(setting) for setting in settings}) == 8


@pytest.mark.parametrize("sampler", OBJECTS)
def test_a_sampler_of_the_user_keeps_its_seed(sampler):
    assert suggestions_of(sampler, 1) == suggestions_of(sampler, 2)


@pytest.mark.parametrize("sampler", CLASSES)
def test_a_class_of_samplers_gets_the_seed_of_the_study(sampler):
    assert suggestions_of(sampler, 1) != suggestions_of(sampler, 2)


@pytest.mark.parametrize("wrong", ["bohb", 3, None, dict])
def test_an_unknown_sampler_is_named(wrong):
    with pytest.raises(UserError, match=r"^no sampler .*tpe, gp, random") as caught:
        new_search(wrong)
    assert "\n" not in str(caught.value)


LOSSES = st.lists(st.floats(0, 10), min_size=1, max_size=12)
PRUNED = Study(name="s", question="?", points=POINTS, epochs=9, grace=1)


def curves(losses):
    return [{1: loss} for loss in losses]


@cases(CASES, "rungs", "grace, reduction, epochs, expected")
def test_rungs_are_geometric_and_below_the_budget(grace, reduction, epochs, expected):
    """By default a run may stop at half of its epochs."""
    study = replace(PRUNED, grace=grace, reduction=reduction, epochs=epochs)
    assert list(rungs(study)) == expected


@given(LOSSES, st.integers(2, 4))
def test_asha_with_settings_one_after_the_other_equals_ray_tunes(losses, reduction):
    # Of one rung, at the first epoch.
    bracket = _Bracket(min_t=1, max_t=2, reduction_factor=reduction, s=0)
    asha = Asha((1,), reduction)
    for index, loss in enumerate(losses):
        earlier = losses[:index]
        trial = SimpleNamespace(trial_id=str(index))
        theirs = bracket.on_result(trial, 1, -loss)
        ours = asha.prunes(1, {1: loss}, curves(earlier))
        cutoff = np.inf
        if earlier:
            cutoff = np.percentile(earlier, 100 / reduction)
        # Rounding decides a tie.
        if not np.isclose(loss, cutoff, rtol=1e-9):
            assert ours == (theirs != "CONTINUE")


@given(LOSSES, st.randoms())
def test_the_order_of_earlier_settings_does_not_matter(losses, shuffler):
    pruner = make_pruner(PRUNED)
    last, *earlier = losses
    answer = pruner.prunes(1, {1: last}, curves(earlier))
    shuffler.shuffle(earlier)
    assert pruner.prunes(1, {1: last}, curves(earlier)) == answer


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
    rule = make_pruner(replace(PRUNED, pruner=pruner))
    assert rule.prunes(1, curve, earlier) == stops


class Mine:
    def prunes(self, epoch, curve, earlier):
        return epoch == 2


def test_an_object_with_the_method_is_a_pruner():
    mine = Mine()
    assert make_pruner(replace(PRUNED, pruner=mine)) is mine


@pytest.mark.parametrize("wrong", ["hyperband", 3, Asha, None])
def test_what_is_no_pruner_is_refused_in_one_line(wrong):
    with pytest.raises(UserError, match=r"^no pruner .*asha, halving, none") as caught:
        make_pruner(replace(PRUNED, pruner=wrong))
    assert "\n" not in str(caught.value)
