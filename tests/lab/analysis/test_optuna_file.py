"""Tune runs as an Optuna study, and the union of the ranges that points search."""

import json
import runpy
from datetime import UTC
from pathlib import Path

import numpy as np
import optuna
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import search_ranges
from tests.lab.analysis.toy_study import change_lines


@pytest.fixture
def tuned(toy):
    """Two points with three tune runs each."""
    rng = np.random.default_rng(0)
    for point in ("full", "gate"):
        for index in range(3):
            setting = {"lr": 10 ** rng.uniform(-4, -1), "recipe.clip": [1.0, None][index % 2]}
            toy.add_run(point, index, 20 + setting["lr"], setting=setting)
        toy.study_json["points"].append({"id": point, "label": f"cut {point}", "aliases": []})
    toy.write()
    return toy


def test_optuna_reads_the_exported_runs(tuned, tmp_path, capsys):
    pruned = tuned.add_run("gate", 98, 40.0, status="pruned", setting={"lr": 0.1})
    diverged = tuned.add_run("gate", 99, None, setting={"lr": 0.1})
    ended = "2026-03-01T12:00:00+00:00"
    change_lines(tuned.records_path("gate-tune-2"), "end", time=ended)
    file = tmp_path / "tuned.journal"
    script = runpy.run_path(str(Path(__file__).parents[3] / "tools/to_optuna.py"))
    script["main"](str(tuned.path), file)
    assert capsys.readouterr().out == f"{file}: 8 tune runs\n"
    backend = optuna.storages.journal.JournalFileBackend(str(file))
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.load_study(study_name="toy", storage=storage)
    by_run = {trial.user_attrs["run"]: trial for trial in study.trials}
    assert len(by_run) == 8
    trial = by_run["gate-tune-2"]
    config = json.loads(tuned.config_path("gate-tune-2").read_text())
    assert trial.params == config["setting"]
    assert trial.user_attrs["point"] == "cut gate"
    assert trial.duration.total_seconds() == 1.5, "three epochs of half a second"
    assert trial.datetime_complete.astimezone(UTC).isoformat() == ended
    assert study.trials[0] == trial, "it has a time; others are of an earlier version"
    assert list(trial.intermediate_values) == [1, 2, 3]
    assert trial.value == min(trial.intermediate_values.values())
    assert by_run[pruned].state is optuna.trial.TrialState.PRUNED
    assert by_run[diverged].state is optuna.trial.TrialState.FAIL
    assert study.best_value == min(t.value for t in study.trials if t.value is not None)
    with pytest.raises(UserError, match="exists; remove it"):
        script["main"](str(tuned.path), file)


@pytest.mark.parametrize(
    ("first", "second", "tried", "union"),
    [
        ({"low": 8, "high": 64, "log": True}, {"low": 4, "high": 16, "log": True}, 5,
         {"low": 4, "high": 64, "log": True}),
        ({"low": 8, "high": 64, "log": True}, {"low": 0.5, "high": 16.0, "log": False}, 5.5,
         {"low": 0.5, "high": 64.0, "log": False}),
        ({"values": [1.0, None]}, {"values": [2.0, None]}, 2.0, {"values": [1.0, None, 2.0]}),
        ({"values": ["a"]}, {"low": 1, "high": 2, "log": False}, 2, {"values": ["a", 2]}),
        ({"low": 1, "high": 2, "log": False}, {"low": 1, "high": 2, "log": False}, "a",
         {"values": ["a"]}),
    ],
)  # fmt: skip
def test_the_union_of_two_ranges_and_a_tried_value(first, second, tried, union):
    points = [{"label": "a", "search": {"f": first}}, {"label": "b", "search": {"f": second}}]
    result = search_ranges({"points": points}, [{"f": tried}])
    assert result == {"f": union}
    assert [type(v) for v in result["f"].values()] == [type(v) for v in union.values()]
