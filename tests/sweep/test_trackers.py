"""The trackers of Ray Tune, W&B and MLflow have every run, as the records have it."""

# ruff: noqa: F401, F811  pytest needs the imported fixture `track` as a parameter name

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.sweep.trackers import check_trackers, tracking_callbacks
from lmzoo.sweep.tracking import Tracker
from tests.user_errors import raises_user_error

from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback  # isort: skip

from .processes import ROOT  # isort: skip
from .wandb_file import read  # isort: skip
from .tracked_runs import (
    LOSSES,
    RECIPE,
    make_record,
    make_run,
    modified,
    read_lines,
    track,
    train,
)

POINT = "cut state_to_candidate (4)"
NAME = f"{POINT} · seed 7 · tune"
FOLDER = f"{NAME} 0".replace("(", "_").replace(")", "_")


def test_the_file_loggers_of_ray_tune_write_every_epoch(track, tmp_path):
    callbacks = [JsonLoggerCallback(), CSVLoggerCallback(), TBXLoggerCallback()]
    track(callbacks, lambda tracker: train(tracker, make_run()))
    folder = tmp_path / "files" / f"{FOLDER} {0:012x}"
    lines = read_lines(folder / "result.json")
    assert [line["valid_token"] for line in lines] == [3.0, 1.5, 1.0, 1.0]
    assert lines[-1]["test_token"] == 1.25
    assert json.loads((folder / "params.json").read_text())["recipe"] == RECIPE
    rows = csv.DictReader((folder / "progress.csv").read_text().splitlines())
    assert [float(row["valid_token"]) for row in rows] == [3.0, 1.5, 1.0, 1.0]
    assert len(list(folder.glob("events.out.tfevents.*"))) == 1


def test_an_unknown_tracker_is_an_error():
    with raises_user_error("tensorbord", "wandb, mlflow"):
        check_trackers(["tensorbord"])


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_an_error(monkeypatch, name):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with raises_user_error(f"--track {name}", "pip install"):
        check_trackers([name])


@pytest.mark.filterwarnings("ignore")  # of MLflow's dependencies
def test_mlflow_has_the_params_and_metrics_of_every_run(track, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs mlflow-skinny: the extra `track`")
    from mlflow.tracking import MlflowClient

    address = (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # faster than a database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)

    def report(tracker):
        train(tracker, make_run(0))
        train(tracker, make_run(1), (1,), None, "pruned")
        tracker.start(make_run(2))  # and the sweep is interrupted

    track(tracking_callbacks(["mlflow"], "toy-captions"), report)
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("toy-captions")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    statuses = {name: run.info.status for name, run in runs.items()}
    assert statuses == {
        f"{NAME} 0": "FINISHED",
        f"{NAME} 1": "FINISHED",
        f"{NAME} 2": "FAILED",
    }
    run = runs[f"{NAME} 0"]
    assert run.data.params["recipe/lr"] == "0.02"
    assert run.data.params["model/cell/cuts"] == "[4]"
    assert run.data.params["point"] == POINT
    assert run.data.params["seed"] == "7"
    for key in LOSSES:
        history = client.get_metric_history(run.info.run_id, key)
        found = [(point.step, point.value) for point in history]
        expected = [(epoch, make_record(epoch)[key]) for epoch in (1, 2, 3, 3)]
        assert found == expected
    assert run.data.metrics["test_token"] == 1.25
    assert runs[f"{NAME} 1"].data.metrics["pruned"] == 1


def track_in_wandb(folder):
    """Track a run that is interrupted after one epoch and continued by a second sweep."""
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    for continued in (False, True):
        tracker = Tracker(tracking_callbacks(["wandb"], "toy-captions"), "toy", Path(folder))
        if continued:
            train(tracker, make_run(epochs_done=1), (2, 3))
        else:
            tracker.start(make_run())
            tracker.epoch(make_run(), make_record(1))
        tracker.close()
    ray.shutdown()


@pytest.mark.slow  # W&B's processes may take minutes on a busy machine
@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore")  # of W&B's messages
def test_wandb_has_the_config_and_metrics_of_a_run_and_continues_it(tmp_path):
    pytest.importorskip("wandb", reason="needs wandb: the extra `track`")
    # In a process of its own: here, other tests have imported Ray before its token was set.
    code = f"from {__name__} import track_in_wandb; track_in_wandb({str(tmp_path)!r})"
    environment = {**os.environ, "WANDB_MODE": "offline"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=environment)
    folder = tmp_path / f"{FOLDER} {0:012x}"
    paths = folder.glob("wandb/offline-run-*/*.wandb")
    (first, first_rows), (second, second_rows) = map(read, sorted(paths, key=modified))
    assert first == second
    assert first["id"] == f"{0:012x}"
    assert first["name"] == f"{NAME} 0"
    assert (first["project"], first["group"]) == ("toy-captions", "toy-captions")
    assert first["config"]["recipe"] == RECIPE
    assert first["config"]["point"] == POINT
    rows = [*first_rows, *second_rows]
    assert [row["_step"] for row in rows] == [1, 2, 3]
    for row in rows:
        expected = make_record(row["_step"])
        assert {key: row[key] for key in LOSSES} == {key: expected[key] for key in LOSSES}
    assert rows[-1]["test_token"] == 1.25
    assert rows[-1]["finished"] == 1


def test_wandb_continues_a_run_of_the_same_id():
    pytest.importorskip("wandb", reason="needs wandb: the extra `track`")
    (callback,) = tracking_callbacks(["wandb"], "toy-captions")
    assert callback.kwargs["resume"] == "allow"  # type: ignore[attr-defined]
