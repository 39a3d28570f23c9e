"""Made-up runs that are reported to a `Tracker`, and a callback that records the calls."""

import json
import threading

import pytest

from lmzoo.study.planned_run import PlannedRun
from lmzoo.sweep.tracking import Tracker

from ray.tune import Callback  # isort: skip


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
