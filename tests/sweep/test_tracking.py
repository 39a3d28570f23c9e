"""The tracker shows every run to Ray Tune's callbacks as one trial."""

# ruff: noqa: F401, F811  pytest needs the imported fixture `track` as a parameter name

import logging
import threading
from pathlib import Path

import pytest

from lmzoo.sweep.tracking import Tracker, run_trial
from tests.user_errors import raises_user_error

from ray.tune import Callback  # isort: skip
from ray.tune.logger import JsonLoggerCallback  # isort: skip

from .tracked_runs import (
    LOSSES,
    MODEL,
    RECIPE,
    TEST,
    Recorder,
    make_record,
    make_run,
    read_lines,
    track,
    train,
)


def test_a_run_is_a_trial_with_its_name_config_and_every_epoch(track):
    seen = Recorder()
    track([seen], lambda tracker: train(tracker, make_run(1003, stage="confirm")))
    name = "cut state_to_candidate (4) · seed 7 · confirm"
    hooks = ["start", "result", "result", "result", "result", "complete"]
    assert seen.calls == [*((hook, name) for hook in hooks), ("end", "")]
    trial = seen.trials[name]
    assert trial.trial_id == f"{1003:012x}"
    assert trial.config["point"] == "cut state_to_candidate (4)"
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
    assert seen.calls[-2:] == [(hook, "cut state_to_candidate (4) · seed 7 · tune 0"), ("end", "")]


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
