"""Listeners: none can end a sweep; W&B and MLflow, read back, show every run as recorded."""

import dataclasses
import importlib.util
import logging
import threading
from types import SimpleNamespace

import pytest

import lmzoo
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.sweep import command
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.listeners import Tracker, check_trackers, open_tracker
from tests.user_errors import raises_user_error

from .local_fleet import Events, LocalWorker


class OnlyEnds:
    """A listener without the other methods."""

    def __init__(self) -> None:
        self.ended = []

    def end(self, run, test) -> None:
        self.ended.append((run, test))


class Raises:
    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def epoch(self, run, record) -> None:
        raise self._error("no route")


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_listener_that_raises_is_named_once_and_the_sweep_goes_on(
    error, planner, corpus, tmp_path, caplog
):
    events = Events()
    fleet = Fleet(planner, Packer(corpus, 1), [Raises(error), OnlyEnds(), events])
    worker = LocalWorker("a", fleet, tmp_path, corpus)
    for step in range(3):
        worker.train(worker.exchange(float(step)))
    worker.exchange(3.0)
    worker.pack.suspend()
    worker.lock.close()
    assert len(events.epochs) >= 2
    said = [r.getMessage() for r in caplog.records if "listener" in r.getMessage()]
    assert len(said) == 1
    text = f"listener Raises is not called again: {error.__name__}: no route (test_listeners"
    assert text in said[0]


@pytest.mark.parametrize("given", ["study", "main"])
def test_main_takes_listeners(study, monkeypatch, given):
    own, seen = OnlyEnds(), []
    monkeypatch.setattr(command, "run_studies", seen.extend)
    if given == "study":
        lmzoo.main(dataclasses.replace(study, listeners=(own,)))
    else:
        lmzoo.main(study, listeners=(own,))
    assert seen[0].listeners == (own,)


def test_run_study_takes_listeners(study, monkeypatch):
    own, other = OnlyEnds(), OnlyEnds()
    seen = []

    def sweep(changed, *_, **__):
        seen.append(changed)
        return SimpleNamespace(run=lambda *_, **__: 130)

    monkeypatch.setattr(command, "Sweep", sweep)
    with pytest.raises(KeyboardInterrupt):
        lmzoo.run_study(dataclasses.replace(study, listeners=(own,)), listeners=[other])
    assert seen[0].listeners == (own, other)


MODEL = {"name": "recurrent_lm", "width": 4, "cell": {"name": "mgu", "cuts": [4]}}
RECIPE = {"lr": 0.02, "batch": 16}
TEST = {"event": "test", "epoch": 3, "token": 1.25, "sentence": 12.5, "tokens": 100}
OWN = "hits@1 (↑)"
"""A metric of a program."""
LOSSES = ("train_token", "valid_token", "valid_sentence", "seconds")
POINT = "cut state_to_candidate (4)"
NAME = f"{POINT} · seed 7 · tune"


def make_run(index=0, *, stage="tune", epochs_done=0):
    config = {
        "run": f"{index:012x}",
        "study": "toy",
        "stage": stage,
        "point": {"id": "p", "label": "cut 4"},
        "setting": {"recipe.lr": 0.02},
        "seed": 7,
        "corpus": {"name": "captions"},
        "model": MODEL,
        "recipe": RECIPE,
        "environment": {"torch": "2"},
    }
    run = PlannedRun(config["run"], "cut 4", stage, index, config, budget=3)
    run.curve.update({epoch: 3.0 / epoch for epoch in range(1, epochs_done + 1)})
    return run


def make_record(epoch):
    losses = {"train_token": 4.0 / epoch, "valid_token": 3.0 / epoch, "valid_sentence": 30.0}
    return {"event": "epoch", "epoch": epoch, **losses, "seconds": 0.5, "host": "here"}


def program_record(epoch):
    """Return a record of a program that reports a metric of which the highest is the best."""
    own = {"valid_token": -0.1 * epoch, "metrics": {OWN: 0.1 * epoch}}
    return {"event": "epoch", "epoch": epoch, **own, "seconds": 0.5, "host": "here"}


def train(tracker, run, epochs=(1, 2, 3), test=TEST, status="finished", record=make_record):
    """Report a run as a sweep does."""
    tracker.start(run)
    for epoch in epochs:
        run.add_epoch(epoch, record(epoch)["valid_token"])
        tracker.epoch(run, record(epoch))
    run.status = status
    tracker.end(run, test)


class Seen(Tracker):
    """Stores what it is called with."""

    def __init__(self):
        self.runs, self.epochs, self.ends, self.threads = {}, [], [], set()
        super().__init__()

    def _open(self, run_id, name, config):
        self.threads.add(threading.current_thread())
        self.runs[run_id] = name, config
        return run_id

    def _show(self, opened, metrics, epoch):
        self.epochs.append((opened, epoch, metrics))

    def _close(self, opened, status, *, failed):
        self.ends.append((opened, status, failed))


def shown(report):
    """Return a tracker that has seen a report."""
    tracker = Seen()
    report(tracker)
    tracker.close()
    return tracker


def test_a_run_has_its_name_its_config_every_epoch_and_its_test():
    seen = shown(lambda tracker: train(tracker, make_run(1003, stage="confirm")))
    run_id = f"{1003:012x}"
    name, config = seen.runs[run_id]
    assert name == f"{POINT} · seed 7 · confirm"
    assert (config["point"], config["model"], config["recipe"]) == (POINT, MODEL, RECIPE)
    assert "environment" not in config
    keys = [make_record(epoch) for epoch in (1, 2, 3)]
    expected = [({key: r[key] for key in LOSSES}, r["epoch"]) for r in keys]
    assert [(metrics, epoch) for _, epoch, metrics in seen.epochs[:3]] == expected
    assert seen.epochs[3] == (run_id, 3, {"test_token": 1.25, "test_sentence": 12.5})
    assert seen.ends == [(run_id, "finished", False)]
    assert threading.current_thread() not in seen.threads


@pytest.mark.parametrize("has_test", [True, False])
def test_a_program_is_shown_with_its_own_names_and_signs(has_test):
    """Its records have a maximized metric as a loss, with the other sign."""
    run = make_run(1003, stage="confirm")
    run.config["model"] = {"name": "train", "metric": OWN, "test_metric": "test"}
    best = {OWN: 0.2, "test": 0.7} if has_test else {OWN: 0.2}
    test = {"event": "test", "epoch": 3, "token": -0.7, "metrics": best}
    seen = shown(lambda tracker: train(tracker, run, test=test, record=program_record))
    assert [metrics for *_, metrics in seen.epochs] == [
        *({OWN: 0.1 * epoch, "seconds": 0.5} for epoch in (1, 2, 3)),
        {"best_epoch/test": 0.7} if has_test else {f"best_epoch/{OWN}": 0.2},
    ]


def test_a_run_that_another_worker_or_a_later_sweep_continues_has_each_epoch_once():
    def report(tracker):
        run = make_run()
        tracker.start(run)
        tracker.epoch(run, make_record(1))
        tracker.epoch(run, make_record(2))
        tracker.start(run)  # the worker died before the planner received epoch 2 as written
        tracker.epoch(run, make_record(2))
        tracker.epoch(run, make_record(3))

    seen = shown(report)
    assert len(seen.runs) == 1
    assert [epoch for _, epoch, _ in seen.epochs] == [1, 2, 3]
    assert seen.ends == [("0" * 12, "interrupted", True)]
    seen = shown(lambda tracker: train(tracker, make_run(epochs_done=1), (1, 2, 3)))
    assert [epoch for _, epoch, _ in seen.epochs] == [2, 3, 3]
    for status in ("pruned", "diverged", "failed"):
        seen = shown(lambda tracker, status=status: train(tracker, make_run(), (1,), None, status))
        assert seen.ends == [("0" * 12, status, status == "failed")]
        assert len(seen.epochs) == 1


def test_a_slow_tracker_does_not_block_the_sweep(caplog):
    free = threading.Event()

    class Stuck(Seen):
        def _open(self, run_id, name, config):
            free.wait()

    caplog.set_level(logging.WARNING, "lmzoo.lab.sweep")
    tracker = Stuck()
    train(tracker, make_run())
    tracker.close(0.1)
    free.set()
    text = "Stuck: not done after 0.1 s; 5 reports are lost"
    assert [record.getMessage() for record in caplog.records] == [text]


def test_a_tracker_that_fails_is_logged_once_and_not_called_again(caplog):
    class Broken(Seen):
        def _show(self, opened, metrics, epoch):
            super()._show(opened, metrics, epoch)
            raise ConnectionError("gone\nfar away")

    tracker = Broken()
    train(tracker, make_run())
    tracker.close()
    assert len(tracker.epochs) == 1
    (record,) = caplog.records
    assert record.getMessage().startswith("not called again: Broken: ConnectionError: gone (")


def test_a_tracker_that_is_unknown_or_not_installed_is_an_error(monkeypatch):
    with raises_user_error("tensorbord", "wandb, mlflow"):
        check_trackers(["tensorbord"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    for name in ("wandb", "mlflow"):
        with raises_user_error(f"--track {name}", "pip install"):
            check_trackers([name])


def interrupt_and_continue(name, folder):
    """Track a run that is interrupted after an epoch and continued by a second sweep."""
    tracker = open_tracker(name, "toy-captions", folder)
    tracker.start(make_run())
    tracker.epoch(make_run(), make_record(1))
    tracker.close()
    tracker = open_tracker(name, "toy-captions", folder)
    tracker.start(make_run(1))  # two runs are open at the same time
    train(tracker, make_run(epochs_done=1), (2, 3))
    train(tracker, make_run(1), (1, 2), None, "pruned", program_record)
    tracker.close()


@pytest.mark.filterwarnings("ignore")  # of MLflow's dependencies
def test_mlflow_has_the_params_and_metrics_of_every_run(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs mlflow-skinny: the extra `track`")
    from mlflow.tracking import MlflowClient

    address = (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # faster than a database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    interrupt_and_continue("mlflow", tmp_path)
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("toy-captions")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    statuses = {name: (run.info.status, run.data.tags["status"]) for name, run in runs.items()}
    assert statuses == {f"{NAME} 0": ("FINISHED", "finished"), f"{NAME} 1": ("FINISHED", "pruned")}
    run = runs[f"{NAME} 0"]
    expected = {"recipe/lr": "0.02", "model/cell/cuts": "[4]", "point": POINT, "seed": "7"}
    assert {key: run.data.params[key] for key in expected} == expected
    for key in LOSSES:
        history = client.get_metric_history(run.info.run_id, key)
        expected = [(epoch, make_record(epoch)[key]) for epoch in (1, 2, 3)]
        assert [(point.step, point.value) for point in history] == expected
    assert run.data.metrics["test_token"] == 1.25
    assert runs[f"{NAME} 1"].data.metrics == {"hits_1 ___": pytest.approx(0.2), "seconds": 0.5}


@pytest.mark.filterwarnings("ignore")  # of W&B's messages
def test_wandb_has_the_config_and_metrics_of_a_run_and_continues_it(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs wandb: the extra `track`")
    monkeypatch.setenv("WANDB_MODE", "offline")
    interrupt_and_continue("wandb", tmp_path)
    wandb.teardown()  # as at the end of a process; `finish` does not wait for the file
    # A folder is named by second and id; another one of the same second and id ends in `-1`.
    files = sorted(tmp_path.glob(f"wandb/offline-run-*/run-{0:012x}.wandb"))
    first, second = (file.read_bytes() for file in files)
    for text in (f"{NAME} 0", f"{0:012x}", "toy-captions", POINT, *RECIPE, *LOSSES):
        assert text.encode() in first
        assert text.encode() in second
    assert b"test_token" in second
    assert b"test_token" not in first
    (program,) = tmp_path.glob(f"wandb/offline-run-*/run-{1:012x}.wandb")
    assert OWN.encode() in program.read_bytes()
