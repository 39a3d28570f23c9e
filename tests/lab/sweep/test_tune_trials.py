"""`--engine tune`: Ray Tune places the workers, and the coordinator decides as with Ray Core."""

# ruff: noqa: F811  fixtures are imported, and then requested by name
import asyncio
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.sweep import tune_trials
from lmzoo.lab.sweep.driver.coordinator import MAX_FAILED_STARTS
from lmzoo.lab.sweep.driver.execution import Sweep
from lmzoo.lab.sweep.tune_trials import Requests, Turns, placed
from lmzoo.lab.sweep.worker.trial import WORKER, PackTrial

from .manual_coordinator import Handle, sweep  # noqa: F401
from .test_coordinator import LOW


class Controller:
    """What the engine uses of Tune's controller; it places a trial when the test says so."""

    def __init__(self, coordinator) -> None:
        self.requests = Requests()
        coordinator._place = self.requests.names.append
        self.requests.turns = coordinator.turns()
        self.scheduler = Turns(self.requests, coordinator)
        self.trials = []
        self.stopped = []

    def get_trials(self):
        return self.trials

    def stop_trial(self, trial) -> None:
        self.stopped.append(trial.config[WORKER])
        self.trials.remove(trial)

    def ask(self):
        """Ask for a trial, as Tune does; return its config."""
        config = self.requests.suggest("trial")
        if isinstance(config, dict):
            state = SimpleNamespace(ray_actor=None)
            self.trials.append(
                SimpleNamespace(config=config, status="RUNNING", temporary_state=state)
            )
        return config

    def step(self) -> None:
        assert self.scheduler.choose_trial_to_run(self) is None


@pytest.fixture
def tune(sweep, monkeypatch):
    kill = lambda handle: sweep.killed.append(handle.name)  # noqa: E731
    monkeypatch.setattr(tune_trials, "ray", SimpleNamespace(kill=kill))
    return Controller(sweep.coordinator)


def test_a_worker_trains_once_tune_has_placed_it_and_its_trial_stops_when_it_has_died(sweep, tune):
    name = tune.ask()[WORKER]
    tune.step()
    assert sweep.coordinator.actors[name].handle is None
    tune.trials[0].temporary_state.ray_actor = Handle(name, sweep)
    tune.step()
    handle = sweep.coordinator.actors[name].handle
    tune.step()
    assert sweep.coordinator.actors[name].handle is handle, "it is placed once"
    assert not tune.stopped
    sweep.dies(name)
    sweep.killed.clear()
    tune.step()
    # Tune would wait for the end of a process that has closed its files.
    assert tune.stopped == [name]
    assert sweep.killed == [name]
    assert tune.ask()[WORKER] != name


def test_a_trial_that_is_placed_too_late_is_killed(sweep, tune):
    name = tune.ask()[WORKER]
    del sweep.coordinator.actors[name]
    tune.trials[0].temporary_state.ray_actor = Handle(name, sweep)
    tune.step()
    assert {*sweep.killed} == {name}
    assert tune.stopped == [name]


def test_a_process_that_cannot_start_counts_as_a_failed_start(sweep, tune, tmp_path):
    for _ in range(MAX_FAILED_STARTS):
        assert sweep.coordinator.error is None
        tune.ask()
        fails_to_start(tune, tmp_path, "Traceback\nImportError: no torch\n")
    assert "ImportError: no torch" in str(sweep.coordinator.error)


def test_processes_that_ray_kills_for_want_of_memory_are_one_failed_start(sweep, tune, tmp_path):
    asked = [*iter(tune.ask, None)]
    for _ in asked:
        fails_to_start(tune, tmp_path, f"Failure # 1\n{LOW}\nsee the logs")
        tune.trials.pop()
        assert sweep.coordinator.wanted() == 0, "new workers wait"
    assert sweep.coordinator._failed_starts == 1 < len(asked)


def fails_to_start(tune, folder, error):
    """Let Tune fail to start the process of the last trial."""
    file = folder / "error.txt"
    file.write_text(error)
    trial = tune.trials[-1]
    trial.error_file = str(file)
    tune.scheduler.on_trial_error(tune, trial)


def test_tune_ends_with_the_sweep_and_not_before(sweep, tune):
    asked = [*iter(tune.ask, None)]
    assert len(asked) == sweep.coordinator.wanted() == len(sweep.coordinator.actors)
    sweep.coordinator.error = UserError("the store is full")
    assert tune.requests.suggest("trial") == Searcher.FINISHED
    assert not sweep.coordinator.actors


def test_what_tune_writes_of_the_engine_has_no_state_of_a_sweep(tune):
    for part in (tune.requests, tune.scheduler):
        # Tune saves its state again and again.
        assert not vars(pickle.loads(pickle.dumps(part)))


def test_a_trial_answers_tune_at_once_and_serves_the_coordinator_in_threads():
    trial: Any = object.__new__(PackTrial)
    trial.worker = SimpleNamespace(news=lambda received, *, wait: (received, wait))
    assert trial.step() == {}
    assert asyncio.run(trial.news(3, wait=True)) == (3, True)
    turns: Any = object.__new__(Turns)
    assert turns.on_trial_result(None, None, {}) == TrialScheduler.NOOP


def test_tune_reserves_what_ray_reserves_for_a_worker():
    own = Resources(cpus=2, gpus=0.5)
    request = placed(own).default_resource_request({})
    assert request.bundles == [own.bundle]
    assert request.to_placement_group


def test_an_unknown_engine_is_one_line(study):
    with pytest.raises(UserError, match="'spark' is unknown; choose packs or tune"):
        Sweep(study, Resources(), engine="spark")
