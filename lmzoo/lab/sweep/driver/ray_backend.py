"""Ray Tune as the scheduler: it places workers and reports their deaths; the planner decides.

A trial of Ray Tune is a worker, not a run. As many workers are requested as runs could use and the
cluster has or can start. A worker that dies is replaced by a new one. Ray Tune's search state and
result files are written to a temporary folder, `scratch`, that is deleted at the end.
"""

import contextlib
import logging
import os
import re
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # `lmzoo/base/stops.py` has one
os.environ.setdefault("TUNE_MAX_PENDING_TRIALS_PG", "10000")  # all that the searcher suggests

from ray import tune
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfDiskError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)
from ray.tune.execution.class_cache import DEFAULT_ENV_VARS
from ray.tune.search import Searcher

from lmzoo.base.stops import STOPS
from lmzoo.base.version import software
from lmzoo.lab.cluster import connection
from lmzoo.lab.cluster.capacity import Capacity
from lmzoo.lab.cluster.head_store import start_server, write_nonce
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.sweep.driver.coordinator import Coordinator
from lmzoo.lab.sweep.driver.mailbox import OtherSweeps, mailbox_name, start_mailbox
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.worker.worker import Worker

# Ray Tune gives each actor an environment of its own, for a library that is not used here. Without
# it, actors use the idle processes that Ray has started already, which saves 0.7 s per actor.
DEFAULT_ENV_VARS.clear()
# Ray Tune takes these ends of a worker for unknown errors, and ends: Ray kills workers when the
# memory of their node runs out, a node dies with the answer of a worker. Here they are deaths.
for _kind in (OutOfMemoryError, OutOfDiskError, NodeDiedError, ObjectLostError, WorkerCrashedError):
    _kind.__bases__ = (RayActorError,)
    setattr(_kind, "preempted", False)  # noqa: B010
# Ray Tune logs a traceback for each worker that died; the sweep reports the reason in one line.
logging.getLogger("ray.tune").setLevel(logging.CRITICAL)

LOW_MEMORY = re.compile(r"low on memory(?:.*?IP: (\S+), ID: (\w{6}))?", re.DOTALL)
"""Ray's error about a worker that it has killed, and the node."""


class _WorkerSearch(Searcher):
    """Suggests a trial for each worker that the sweep can use and does not have."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(metric="done", mode="max")
        self.coordinator = coordinator
        self._workers: set[str] = set()

    def suggest(self, trial_id: str) -> Any:
        if self.coordinator.finished:
            return Searcher.FINISHED
        if len(self._workers) >= self.coordinator.wanted():
            return None
        self._workers.add(trial_id)
        return {"worker": trial_id}

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  Ray's own signature
    ) -> None:
        self._workers.discard(trial_id)
        if not error:
            self.coordinator.worker_ended(trial_id, died=False)

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the study store holds all state."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the study store holds all state."""


class _StopWhenFinished(tune.Stopper):
    """Ends what Ray Tune still waits for, such as workers that it has not placed yet.

    Ray Tune pickles the instance, so the coordinator is an attribute of the class.
    """

    coordinator: ClassVar[Coordinator | None] = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.coordinator is not None and self.coordinator.finished


class _Watch(tune.Callback):
    """Reports deaths of workers, with their cause, and stops the sweep after a signal or an error.

    Ray Tune propagates errors of callbacks only.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        file = trial.error_file
        found = file and LOW_MEMORY.search(Path(file).read_text(errors="replace"))
        node = f"{found[1]} ({found[2]})" if found and found[1] else "which is not known"
        self.coordinator.worker_ended(trial.trial_id, died=True, memory=node if found else "")

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.coordinator.error:
            raise self.coordinator.error
        if STOPS.requested.is_set():
            raise _InterruptedError


class _InterruptedError(Exception):
    """A signal has ended the sweep."""


def _request(resources: Resources) -> tune.PlacementGroupFactory:
    """Return what Ray reserves for each worker, and where."""
    where: Any = {"bundle_label_selector": [resources.selector]} if resources.selector else {}
    return tune.PlacementGroupFactory([resources.bundle], **where)


def train(fleet: Fleet, capacity: Capacity, scratch: str) -> bool:
    """Train the pending runs of the fleet's planner; return False if the sweep is interrupted.

    Raises:
        UserError: No node of the cluster can run a worker, or the store cannot be written.
    """
    planner, resources = fleet.planner, capacity.resources
    store, name = planner.store.store, mailbox_name()
    mailbox = start_mailbox(name)
    server = start_server(store) if connection.ADDRESS else None
    others = OtherSweeps(mailbox, name) if connection.ADDRESS else None
    with Coordinator(fleet, store, capacity, mailbox, server, others) as coordinator:
        _StopWhenFinished.coordinator = coordinator
        trainable = tune.with_parameters(
            Worker,
            mailbox=mailbox,
            store=store.address,
            corpus=fleet.packer.corpus,
            code=planner.code,
            threads=max(1, int(resources.cpus)),
            gpu=resources.gpus or 0.0,
            nonce=write_nonce(store),
            curves=not planner.store.archives,
            server=server,
            software=software(),
        )
        with contextlib.suppress(_InterruptedError), STOPS.deferred():
            tune.run(
                trainable,
                name="sweep",
                num_samples=-1,
                search_alg=_WorkerSearch(coordinator),
                resources_per_trial=_request(resources),
                storage_path=scratch,
                stop=_StopWhenFinished(),
                callbacks=[_Watch(coordinator)],
                raise_on_failed_trial=False,
                verbose=0,
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            )
    if coordinator.error:
        raise coordinator.error
    if planner.done:
        planner.write_failures()
    return planner.done
