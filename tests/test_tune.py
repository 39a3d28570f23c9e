"""`lmzoo.tune`: what a trial takes over from another one, and fresh seeds for the best trials."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.search import Searcher

from lmzoo import tune
from lmzoo.base.errors import UserError
from tests.user_errors import raises_user_error


@pytest.mark.parametrize("name", ["model.width", "recipe.optimiser", "recipe.init", "point"])
def test_a_checkpoint_does_not_go_on_with_other_weights_or_another_optimiser(name):
    donor = {name: 8, "recipe.lr": 0.1, "seed": 0}
    for other in ({name: 16}, {}):
        with pytest.raises(UserError, match=f"checkpoint with {name}=8 cannot go on"):
            tune._check_same(donor, other)


def test_a_checkpoint_goes_on_with_another_rate_seed_or_decay():
    donor = {"model.width": 8, "recipe.lr": 0.1, "seed": 0}
    other = {"model.width": 8, "recipe.lr": 0.2, "seed": 1, "recipe.weight_decay": 0.5}
    tune._check_same(donor, other)


class Grid(list):
    experiment_path = "runs/search"


def results(*trials: tuple[dict, float]):
    """Return what a search found by these settings and losses, and one trial that failed."""
    grid = Grid()
    for config, loss in trials:
        metrics = {"valid": loss, "environment": {"numpy": "0.1"}}
        grid.append(SimpleNamespace(config=config, metrics=metrics))
    # A trial that failed has no metrics.
    grid.append(SimpleNamespace(config={"point": "failed"}, metrics=None))
    return grid


FOUR = results(
    ({"point": "a", "recipe.lr": 0.1, "seed": 4}, 1.0),
    ({"point": "a", "recipe.lr": 0.3, "seed": 0}, 2.0),
    ({"point": "a", "recipe.lr": 0.9, "seed": 0}, float("nan")),
    ({"point": "b", "recipe.lr": 0.2, "seed": 0}, 3.0),
)


@pytest.fixture
def tuner(monkeypatch):
    """Return how Ray's Tuner is called, which trains nothing here."""
    calls: list[dict] = []

    def called(train, **how):
        calls.append(how)
        return SimpleNamespace(fit=lambda: "results")

    monkeypatch.setattr(tune.tune, "Tuner", called)
    return calls


@pytest.mark.parametrize(("mode", "rate"), [("min", 0.1), ("max", 0.3)])
def test_the_best_setting_of_each_point_is_trained_on_seeds_that_no_trial_has(tuner, mode, rate):
    assert tune.confirm(FOUR, print, seeds=2, mode=mode) == "results"
    [how] = tuner
    points = []
    for config in how["tune_config"].search_alg.left:
        points.append((config["point"], config["recipe.lr"], config["seed"]))
    assert sorted(points) == [("a", rate, 5), ("a", rate, 6), ("b", 0.2, 5), ("b", 0.2, 6)]
    assert how["tune_config"].num_samples == 4


def test_trials_of_other_packages_are_named(tuner, caplog):
    tune.confirm(FOUR, print, seeds=2)
    said = "4 trials, whose losses choose the settings, were trained with numpy 0.1 (now"
    assert said in caplog.text


def test_a_metric_that_no_trial_reports_is_one_line():
    with raises_user_error("no trial of runs/search has reported 'loss'"):
        tune.confirm(FOUR, print, metric="loss")


def test_an_unknown_mode_is_one_line():
    with raises_user_error("neither min nor max"):
        tune.confirm(results(), print, mode="least")


def test_a_setting_that_no_trial_has_is_one_line():
    with raises_user_error("by: no trial has 'pointless'; known: seed"):
        tune.confirm(results(({"seed": 0}, 1.0)), print, by=["pointless"])


def test_a_function_with_other_arguments_is_one_line():
    with raises_user_error("write def short(settings, seed, epochs)"):
        tune.trainable(short)


def test_a_function_that_yields_no_record_is_one_line():
    with raises_user_error("<lambda> yields 1.0; yield a dict"):
        tune.trainable(lambda settings, seed, epochs: short(settings, seed))({})


def test_a_point_that_is_not_there_is_one_line():
    with pytest.raises(UserError, match=r"point 'b' is not one of trainable\(points=\.\.\.\): a"):
        tune.trainable("gru", points={"a": {}})({"point": "b"})


def short(settings, seed):
    return [1.0]


def test_a_branch_of_a_conditional_space_is_confirmed_with_its_own_names(tmp_path):
    """Another branch has one name more; a restored Tuner goes on after those suggested."""
    listed = tune.Listed([{"kind": "a", "seed": 1}, {"kind": "b", "seed": 1, "rate": 0.1}])
    assert listed.suggest("first") == {"kind": "a", "seed": 1}
    saved = tmp_path / "listed"
    listed.save(str(saved))
    again = tune.Listed([{"kind": "a", "seed": 1}, {"kind": "b", "seed": 1, "rate": 0.1}])
    again.restore(str(saved))
    assert again.suggest("second") == {"kind": "b", "seed": 1, "rate": 0.1}
    assert again.suggest("third") == Searcher.FINISHED


def test_a_trial_reports_what_may_change_its_numbers(monkeypatch):
    reports: list[Any] = []
    monkeypatch.setattr(tune.tune, "report", lambda record, **_: reports.append(record))
    tune.trainable(small, epochs=1)({"seed": 3})
    (record,) = reports
    assert record["loss"] == 3
    assert record["environment"]["packages"]["pytest"] == pytest.__version__
    assert record["environment"]["variables"] == {"LEVEL": None}


def small(settings, seed, epochs):
    return [{"loss": seed, "level": os.environ.get("LEVEL")}]
