"""`lmzoo.tune`: what a trial takes over from another one, and fresh seeds for the best trials."""

import math
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
    # Ray gives the folder to its results.
    experiment_path = "runs/search"


def results(*trials: tuple[dict, float]):
    """Return what a search found by these settings and losses, and one trial that failed."""
    grid = Grid()
    for config, loss in trials:
        metrics = {"valid": loss, "environment": {"numpy": "0.1"}}
        trial = SimpleNamespace(config=config, metrics=metrics)
        grid.append(trial)
    # A trial that failed has no metrics.
    failed = SimpleNamespace(config={"point": "failed"}, metrics=None)
    grid.append(failed)
    return grid


def setting(point: str, rate: float, seed: int = 0) -> dict:
    return {"point": point, "recipe.lr": rate, "seed": seed}


BEST = setting("a", 0.1, seed=4)
WORSE = setting("a", 0.3)
DIVERGED = setting("a", 0.9)
OTHER = setting("b", 0.2)
FOUR = results((BEST, 1.0), (WORSE, 2.0), (DIVERGED, math.nan), (OTHER, 3.0))


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
    (how,) = tuner
    config = how["tune_config"]
    left = config.search_alg.left
    assert len(left) == config.num_samples == 4
    # The largest seed of a trial is 4.
    for seed in (5, 6):
        assert setting("a", rate, seed) in left
        assert setting("b", 0.2, seed) in left


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
    grid = results(({"seed": 0}, 1.0))
    with raises_user_error("by: no trial has 'pointless'; known: seed"):
        tune.confirm(grid, print, by=["pointless"])


def test_a_function_with_other_arguments_is_one_line():
    with raises_user_error("write def short(settings, seed, epochs)"):
        tune.trainable(short)


def test_a_function_that_yields_no_record_is_one_line():
    train = tune.trainable(lambda settings, seed, epochs: [1.0])
    with raises_user_error("<lambda> yields 1.0; yield a dict"):
        train({})


def test_a_point_that_is_not_there_is_one_line():
    train = tune.trainable("gru", points={"a": {}})
    with raises_user_error("point 'b' is not one of trainable(points=...): a"):
        train({"point": "b"})


def short(settings, seed):
    return [1.0]


def test_a_branch_of_a_conditional_space_is_confirmed_with_its_own_names(tmp_path):
    """Another branch has one name more; a restored Tuner goes on after those suggested."""
    first = {"kind": "a", "seed": 1}
    second = {"kind": "b", "seed": 1, "rate": 0.1}
    listed = tune.Listed([first, second])
    assert listed.suggest("first") == first
    saved = str(tmp_path / "listed")
    listed.save(saved)
    again = tune.Listed([first, second])
    again.restore(saved)
    assert again.suggest("second") == second
    assert again.suggest("third") == Searcher.FINISHED


def test_a_trial_reports_what_may_change_its_numbers(monkeypatch):
    reports: list[Any] = []
    monkeypatch.setattr(tune.tune, "report", lambda record, **_: reports.append(record))
    train = tune.trainable(small, epochs=1)
    train({"seed": 3})
    (record,) = reports
    environment = record["environment"]
    assert record["loss"] == 3
    # What this module imports, and the variable that the function reads.
    assert environment["packages"]["pytest"] == pytest.__version__
    assert environment["variables"] == {"LEVEL": None}


def small(settings, seed, epochs):
    return [{"loss": seed, "level": os.environ.get("LEVEL")}]
