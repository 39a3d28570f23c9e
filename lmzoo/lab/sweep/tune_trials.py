"""`--engine tune`: Ray Tune places the workers; a trial is a worker, which trains packs.

The coordinator decides, as with the default engine. A `tune.Tuner` asks it: `Requests`, the search
algorithm, which workers it wants; `Turns`, the scheduler, which have ended. Tune gives a trial its
resources, starts its process and frees them again.

Tune calls `train` of a trial once. With an answer of NOOP it waits for no further one: Ray's error
of a process that was killed for want of memory is none that Tune knows, and would end all trials.
The coordinator calls the workers itself (`worker/trial.py`).

The study store has all state, and Tune's own files are temporary.
"""

import contextlib
import io
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from lmzoo.base.restored import quiet, variables
from lmzoo.base.stops import STOPS
from lmzoo.lab.cluster.capacity import Capacity
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.sweep.driver.coordinator import Coordinator
from lmzoo.lab.sweep.driver.placement import end, prepare
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.worker.trial import WORKER, PackTrial

VARIABLES = {
    "RAY_AIR_NEW_OUTPUT": "0",  # else Tune prints its settings whatever the verbosity
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # functions and commands have relative paths
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the runs have their own files
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `lmzoo/base/stops.py` has one
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",  # those that wait are the demand that an autoscaler sees
}


class Requests(Searcher):
    """Suggests a trial for each worker that the coordinator wants."""

    def __init__(self):
        super().__init__()
        self.names = list[str]()
        self.turns: Iterator[None] = iter(())
        """The turns of the coordinator; without an element, the sweep has ended."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes it with the experiment

    def suggest(self, trial_id: str) -> Any:
        """Return the config of a trial; None if no worker is wanted now."""
        # While there is no trial, Tune asks for one before it asks the scheduler.
        if not self.names and not self.turn():
            return Searcher.FINISHED
        if self.names:
            return {WORKER: self.names.pop(0)}
        return None

    def turn(self) -> bool:
        """Let the coordinator make a turn; return False if the sweep has ended."""
        return next(self.turns, WORKER) is None

    def on_trial_complete(self, trial_id: str, *results: Any, **how: Any):
        """Do nothing: the coordinator knows."""

    def save(self, checkpoint_path: str):
        """Write an empty file: the study store has all state."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str):
        """Do nothing: the study store has all state."""


class Turns(FIFOScheduler):
    """Gives the coordinator the workers that Tune has placed, and stops those that have ended."""

    def __init__(self, requests: Requests, coordinator: Coordinator):
        super().__init__()
        self._requests = requests
        self._coordinator = coordinator
        self._placed = set[str]()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes it with the experiment

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Any) -> str:
        """Let the trial live without a further call of `train`."""
        return TrialScheduler.NOOP

    def on_trial_error(self, tune_controller: Any, trial: Trial):
        """Tell the coordinator that a process could not be started."""
        # `get_error` reads the storage, where the file is only after the trial has ended.
        text = Path(trial.error_file or os.devnull).read_text().strip()
        self._coordinator.lost(trial.config[WORKER], text)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Let the coordinator make a turn; return a trial that waits for its resources."""
        self._requests.turn()
        for trial in tune_controller.get_trials():
            name = trial.config[WORKER]
            process = trial.temporary_state.ray_actor
            if process is not None and name not in self._placed:
                self._placed.add(name)
                self._coordinator.placed(name, process)
            if name not in self._coordinator.actors:
                # The worker has closed its files; Tune would wait for seconds for its process.
                if process is not None:
                    ray.kill(process)
                tune_controller.stop_trial(trial)
        return super().choose_trial_to_run(tune_controller)


def placed(resources: Resources) -> Any:
    """Return the trainable of a worker with its resources."""
    bundles = tune.PlacementGroupFactory([resources.bundle])
    return tune.with_resources(PackTrial, bundles)


def train(fleet: Fleet, capacity: Capacity) -> bool:
    """Train the pending runs of the fleet's planner; return False if the sweep is interrupted."""
    requests = Requests()
    coordinator = prepare(fleet, capacity, requests.names.append)
    requests.turns = coordinator.turns()
    turns = Turns(requests, coordinator)
    with (
        STOPS.deferred(),
        contextlib.redirect_stdout(io.StringIO()),  # Tune prints what its verbosity forbids
        variables(VARIABLES),
        quiet("ray.tune", level=logging.CRITICAL),  # the coordinator says what has ended
        tempfile.TemporaryDirectory(prefix="lmzoo-tune-") as folder,
    ):
        tune.Tuner(
            placed(capacity.resources),
            tune_config=tune.TuneConfig(num_samples=-1, search_alg=requests, scheduler=turns),
            run_config=tune.RunConfig(name="workers", storage_path=folder, verbose=0),
        ).fit()
    return end(coordinator)
