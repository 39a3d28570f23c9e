"""The tracker shows every run to Ray Tune's callbacks as one trial."""

import csv
import importlib.util
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lmzoo.sweep.planned_run import PlannedRun
from lmzoo.sweep.tracking import Tracker, run_trial, tracking_callbacks
from tests.user_errors import raises_user_error

from ray.tune import Callback  # isort: skip
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback  # isort: skip

from .processes import ROOT  # isort: skip
from .wandb_file import read  # isort: skip

MODEL = {"name": "recurrent_lm", "width": 4, "cell": {"name": "mgu", "cuts": [4]}}
RECIPE = {"lr": 0.02, "batch": 16}
TEST = {"event": "test", "epoch": 3, "token": 1.25, "sentence": 12.5, "tokens": 100}
LOSSES = ("train_token", "valid_token", "valid_sentence", "seconds")


def make_run(index=0, *, label="cut 4", stage="tune", epochs_done=0):
    config = {
        "run": f"{index:012x}",
        "study": "toy",
        "stage": stage,
        "point": {"id": "p", "label": label},
        "setting": {"recipe.lr": 0.02},
        "seed": 7,
        "corpus": {"name": "captions"},
        "model": MODEL,
        "recipe": RECIPE,
        "environment": {"torch": "2"},
    }
    run = PlannedRun(config["run"], label, stage, index, config, budget=3)
    run.curve.update({epoch: 3.0 / epoch for epoch in range(1, epochs_done + 1)})
    return run


def make_record(epoch):
    return {
        "event": "epoch",
        "epoch": epoch,
        "train_token": 4.0 / epoch,
        "valid_token": 3.0 / epoch,
        "valid_sentence": 30.0 / epoch,
        "seconds": 0.5,
        "tokens_per_second": 1000,
        "host": "here",
    }


def train(tracker, run, epochs=(1, 2, 3), test=TEST, status="finished"):
    """Report a run as a sweep does."""
    tracker.start(run)
    for epoch in epochs:
        run.add_epoch(epoch, make_record(epoch)["valid_token"])
        tracker.epoch(run, make_record(epoch))
    run.status = status
    tracker.end(run, test)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def modified(path):
    return path.stat().st_mtime


class Recorder(Callback):
    """Records the calls for trials, and the threads that make them."""

    def __init__(self):
        self.calls, self.results, self.trials, self.threads = [], [], {}, set()

    def _add(self, hook, trial):
        self.calls.append((hook, str(trial)))
        self.trials[str(trial)] = trial
        self.threads.add(threading.current_thread())

    def on_trial_start(self, iteration, trials, trial, **info):
        assert trial in trials
        self._add("start", trial)

    def on_trial_restore(self, iteration, trials, trial, **info):
        self._add("restore", trial)

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self._add("result", trial)
        self.results.append(result)

    def on_trial_complete(self, iteration, trials, trial, **info):
        self._add("complete", trial)

    def on_trial_error(self, iteration, trials, trial, **info):
        self._add("error", trial)

    def on_experiment_end(self, trials, **info):
        assert not trials
        self.calls.append(("end", ""))


@pytest.fixture
def track(tmp_path):
    """Reports to callbacks with a function, and returns when they have seen everything."""

    def call(callbacks, report, limit=60.0):
        tracker = Tracker(callbacks, "toy", tmp_path / "files")
        report(tracker)
        tracker.close(limit)

    return call


def test_a_run_is_a_trial_with_its_name_config_and_every_epoch(track):
    seen = Recorder()
    track([seen], lambda tracker: train(tracker, make_run(1003, stage="confirm")))
    name = "cut 4, confirm 1003"
    hooks = ["start", "result", "result", "result", "result", "complete"]
    assert seen.calls == [*((hook, name) for hook in hooks), ("end", "")]
    trial = seen.trials[name]
    assert trial.trial_id == f"{1003:012x}"
    assert trial.config["point"] == "cut 4"
    assert trial.config["stage"] == "confirm"
    assert trial.config["seed"] == 7
    assert trial.config["model"] == MODEL
    assert trial.config["recipe"] == RECIPE
    assert "environment" not in trial.config
    assert trial.evaluated_params == {"recipe.lr": 0.02}
    assert trial.status == "TERMINATED"
    for epoch, result in enumerate(seen.results[:3], 1):
        assert {key: result[key] for key in LOSSES} == {k: make_record(epoch)[k] for k in LOSSES}
        assert (result["training_iteration"], result["done"]) == (epoch, False)
    last = seen.results[3]
    assert last["test_token"] == 1.25
    assert last["test_sentence"] == 12.5
    assert (last["valid_token"], last["training_iteration"]) == (1.0, 3)
    assert (last["status"], last["finished"], last["done"]) == ("finished", 1, True)


@pytest.mark.parametrize(
    ("status", "hook"),
    [("pruned", "complete"), ("diverged", "complete"), ("failed", "error")],
)
def test_a_run_that_ends_early_has_its_status(track, status, hook):
    seen = Recorder()
    track([seen], lambda tracker: train(tracker, make_run(), (1,), None, status))
    assert seen.results[-1]["status"] == status
    assert seen.results[-1][status] == 1
    assert "test_token" not in seen.results[-1]
    assert seen.calls[-2:] == [(hook, "cut 4, tune 0"), ("end", "")]


def test_a_run_that_fails_at_once_has_no_result(track):
    seen = Recorder()
    track([seen], lambda tracker: train(tracker, make_run(), (), None, "failed"))
    assert [hook for hook, _ in seen.calls] == ["start", "error", "end"]


def test_a_run_that_another_worker_continues_is_one_trial(track):
    seen, run = Recorder(), make_run()

    def report(tracker):
        tracker.start(run)
        tracker.epoch(run, make_record(1))
        tracker.epoch(run, make_record(2))
        tracker.start(run)  # the worker died before the planner received epoch 2 as written
        tracker.epoch(run, make_record(2))
        tracker.epoch(run, make_record(3))
        run.status = "finished"
        tracker.end(run, TEST)

    track([seen], report)
    assert [hook for hook, _ in seen.calls].count("start") == 1
    assert [result["training_iteration"] for result in seen.results] == [1, 2, 3, 3]


def test_a_later_sweep_continues_the_trial(track):
    first, second = Recorder(), Recorder()

    def interrupt(tracker):
        run = make_run()
        tracker.start(run)
        tracker.epoch(run, make_record(1))

    track([first, JsonLoggerCallback()], interrupt)
    again = make_run(epochs_done=1)
    track([second, JsonLoggerCallback()], lambda tracker: train(tracker, again, (1, 2, 3)))
    assert [hook for hook, _ in first.calls] == ["start", "result", "error", "end"]
    assert [hook for hook, _ in second.calls][:3] == ["start", "restore", "result"]
    (one,), (two,) = first.trials.values(), second.trials.values()
    assert (one.trial_id, one.local_path) == (two.trial_id, two.local_path)
    lines = read_lines(Path(one.local_path, "result.json"))
    assert [line["training_iteration"] for line in lines] == [1, 2, 3, 3]


def test_the_callbacks_run_in_one_thread_of_their_own(track):
    seen = Recorder()
    track([seen], lambda tracker: [train(tracker, make_run(index)) for index in range(3)])
    assert len(seen.threads) == 1
    assert threading.current_thread() not in seen.threads
    assert len(seen.trials) == 3


def test_a_slow_callback_does_not_block_the_sweep(track, caplog):
    free = threading.Event()

    class Stuck(Callback):
        def on_trial_start(self, **info):
            free.wait()

    caplog.set_level(logging.WARNING, "lmzoo.sweep")
    track([Stuck()], lambda tracker: train(tracker, make_run()), limit=0.1)
    free.set()
    assert [r.getMessage() for r in caplog.records] == [
        "Stuck: not done after 0.1 s; 5 reports are lost"
    ]


def test_a_callback_that_fails_is_logged_once_and_the_others_go_on(track, caplog):
    class Broken(Callback):
        calls = 0

        def on_trial_result(self, **info):
            type(self).calls += 1
            raise ConnectionError("no server\nat this address")

    seen = Recorder()
    caplog.set_level(logging.WARNING, "lmzoo.sweep")
    track([Broken(), seen], lambda tracker: train(tracker, make_run()))
    assert [r.getMessage() for r in caplog.records] == [
        "not called again: Broken: ConnectionError: no server"
    ]
    assert Broken.calls == 1
    assert len(seen.results) == 4


def test_a_callback_that_cannot_be_set_up_is_an_error(tmp_path):
    class NoAccount(Callback):
        def setup(self, **info):
            raise ValueError("no API key")

    with raises_user_error("NoAccount", "no API key"):
        Tracker([NoAccount], "toy", tmp_path)


def test_a_function_that_returns_a_callback_is_accepted(track):
    seen = Recorder()
    track([lambda: seen], lambda tracker: train(tracker, make_run()))
    assert len(seen.results) == 4


@pytest.mark.parametrize("label", ["GRU/LSTM: a|b", "→" * 300, "../../x", "two\nlines"])
def test_every_label_makes_a_folder_below_the_folder_of_the_sweep(tmp_path, label):
    trial = run_trial(make_run(label=label), "toy", tmp_path)
    trial.init_local_path()
    assert [path.is_dir() for path in tmp_path.iterdir()] == [True]
    assert trial.config["point"] == label


def test_the_file_loggers_of_ray_tune_write_every_epoch(track, tmp_path):
    callbacks = [JsonLoggerCallback(), CSVLoggerCallback(), TBXLoggerCallback()]
    track(callbacks, lambda tracker: train(tracker, make_run()))
    folder = tmp_path / "files" / f"cut 4, tune 0 {0:012x}"
    lines = read_lines(folder / "result.json")
    assert [line["valid_token"] for line in lines] == [3.0, 1.5, 1.0, 1.0]
    assert lines[-1]["test_token"] == 1.25
    assert json.loads((folder / "params.json").read_text())["recipe"] == RECIPE
    rows = csv.DictReader((folder / "progress.csv").read_text().splitlines())
    assert [float(row["valid_token"]) for row in rows] == [3.0, 1.5, 1.0, 1.0]
    assert len(list(folder.glob("events.out.tfevents.*"))) == 1


def test_an_unknown_tracker_is_an_error():
    with raises_user_error("tensorbord", "wandb, mlflow"):
        tracking_callbacks(["tensorbord"], "toy")


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_an_error(monkeypatch, name):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with raises_user_error(f"--track {name}", "pip install"):
        tracking_callbacks([name], "toy")


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
        "cut 4, tune 0": "FINISHED",
        "cut 4, tune 1": "FINISHED",
        "cut 4, tune 2": "FAILED",
    }
    run = runs["cut 4, tune 0"]
    assert run.data.params["recipe/lr"] == "0.02"
    assert run.data.params["model/cell/cuts"] == "[4]"
    assert run.data.params["point"] == "cut 4"
    assert run.data.params["seed"] == "7"
    for key in LOSSES:
        history = client.get_metric_history(run.info.run_id, key)
        found = [(point.step, point.value) for point in history]
        expected = [(epoch, make_record(epoch)[key]) for epoch in (1, 2, 3, 3)]
        assert found == expected
    assert run.data.metrics["test_token"] == 1.25
    assert runs["cut 4, tune 1"].data.metrics["pruned"] == 1


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
    folder = tmp_path / f"cut 4, tune 0 {0:012x}"
    paths = folder.glob("wandb/offline-run-*/*.wandb")
    (first, first_rows), (second, second_rows) = map(read, sorted(paths, key=modified))
    assert first == second
    assert first["id"] == f"{0:012x}"
    assert first["name"] == "cut 4, tune 0"
    assert (first["project"], first["group"]) == ("toy-captions", "toy-captions")
    assert first["config"]["recipe"] == RECIPE
    assert first["config"]["point"] == "cut 4"
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
