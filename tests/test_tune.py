"""`lmzoo.tune`: what a trial takes over from another one, and fresh seeds for the best trials."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.search import Searcher

from lmzoo import tune
from lmzoo.base.errors import UserError


@pytest.mark.parametrize("name", ["model.width", "recipe.optimiser", "recipe.init", "point"])
def test_a_checkpoint_does_not_go_on_with_other_weights_or_another_optimiser(name):
    donor = {name: 8, "recipe.lr": 0.1, "seed": 0}
    tune._check_same(donor, {name: 8, "recipe.lr": 0.2, "seed": 1, "recipe.weight_decay": 0.5})
    for other in ({name: 16}, {}):
        with pytest.raises(UserError, match=f"checkpoint with {name}=8 cannot go on"):
            tune._check_same(donor, other)


def results(*trials: tuple[dict, float]) -> Any:
    class Grid(list):
        experiment_path = "runs/search"

    then = {"environment": {"numpy": "0.1"}}
    rows = [SimpleNamespace(config=c, metrics={"valid": loss, **then}) for c, loss in trials]
    return Grid([*rows, SimpleNamespace(config={"point": "failed"}, metrics=None)])


@pytest.mark.parametrize(("mode", "rate"), [("min", 0.1), ("max", 0.3)])
def test_the_best_setting_of_each_point_is_trained_on_seeds_that_no_trial_has(
    monkeypatch, caplog, mode, rate
):
    asked: list[Any] = []
    fits = SimpleNamespace(fit=lambda: "results")
    monkeypatch.setattr(tune.tune, "Tuner", lambda train, **how: (asked.append(how), fits)[1])
    grid = results(
        ({"point": "a", "recipe.lr": 0.1, "seed": 4}, 1.0),
        ({"point": "a", "recipe.lr": 0.3, "seed": 0}, 2.0),
        ({"point": "a", "recipe.lr": 0.9, "seed": 0}, float("nan")),
        ({"point": "b", "recipe.lr": 0.2, "seed": 0}, 3.0),
    )
    assert tune.confirm(grid, print, seeds=2, mode=mode) == "results"
    (how,) = asked
    points = how["tune_config"].search_alg.left
    expected = [("a", rate, 5), ("a", rate, 6), ("b", 0.2, 5), ("b", 0.2, 6)]
    assert sorted((c["point"], c["recipe.lr"], c["seed"]) for c in points) == expected
    assert how["tune_config"].num_samples == 4
    assert (
        "4 trials, whose losses choose the settings, were trained with numpy 0.1 (now"
        in caplog.text
    )


def test_results_that_cannot_be_compared_are_one_line():
    with pytest.raises(UserError, match="no trial of runs/search has reported 'loss'"):
        tune.confirm(results(({"seed": 0}, 1.0)), print, metric="loss")
    with pytest.raises(UserError, match="neither min nor max"):
        tune.confirm(results(), print, mode="least")
    with pytest.raises(UserError, match="by: no trial has 'pointless'; known: seed"):
        tune.confirm(results(({"seed": 0}, 1.0)), print, by=["pointless"])


def test_a_function_or_a_point_that_cannot_be_trained_is_one_line():
    with pytest.raises(UserError, match=r"write def short\(settings, seed, epochs\)"):
        tune.trainable(short)
    with pytest.raises(UserError, match=r"<lambda> yields 1\.0; yield a dict"):
        tune.trainable(lambda settings, seed, epochs: short(settings, seed))({})
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
