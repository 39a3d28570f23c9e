"""Ray Tune as the scheduler: it places workers and detects their death; the planner decides.

Ray Tune's search state, scheduler state and result files are not used; they are written to a
temporary folder that is deleted at the end. Its restart of failed trials is not used either: if a
trial dies between two packs, Ray Tune counts two failures and gives up the trial.
"""

import logging
import tempfile
import time
from typing import Any

from lmzoo.sweep.cluster import Resources, check_resources, count_live_workers, count_max_workers
from lmzoo.sweep.dispatch import Dispatcher

from ray import tune  # isort: skip  the imports above set its environment variables
from ray.tune import Callback
from ray.tune.execution.class_cache import DEFAULT_ENV_VARS
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from lmzoo.sweep.console import Console
from lmzoo.sweep.heartbeat import HeartbeatMonitor
from lmzoo.sweep.packing import Packer
from lmzoo.sweep.worker import Worker

ACTOR_START_SECONDS = 60.0
"""How long an actor may take to start."""

# Ray Tune gives each actor an environment of its own, for a library that is not used here. Without
# it, actors use the idle processes that Ray has started already, which saves 0.7 s per actor.
DEFAULT_ENV_VARS.clear()
# At the end Ray Tune lists all trials that died, although their packs were restarted.
logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)


class _StopOnError(Callback):
    """Stops the sweep with the dispatcher's error; Ray Tune propagates errors of callbacks only."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.dispatcher.error:
            raise self.dispatcher.error


class _PlannerScheduler(FIFOScheduler):
    """Stops a trial when none of its runs continues, and selects the trial for a free actor."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self.dispatcher = dispatcher
        self.waiting_since: dict[str, float] = {}

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the trial that takes over a free actor.

        Ray Tune would select the oldest pending trial, and would stop the actor that is starting
        for it on another node. If runs are shorter than the start of an actor, no second node
        would ever work. So the newest trial is selected, for which no actor is starting yet. The
        oldest is selected once it has waited for `ACTOR_START_SECONDS`.
        """
        live = {trial.trial_id: trial for trial in tune_controller.get_live_trials()}
        trials = (live[trial_id] for trial_id in self.dispatcher.packs if trial_id in live)
        pending = [trial for trial in trials if trial.status == Trial.PENDING]
        if not pending:
            return None
        since = self.waiting_since.setdefault(pending[0].trial_id, time.monotonic())
        return pending[0] if time.monotonic() - since > ACTOR_START_SECONDS else pending[-1]

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if result.get("done"):
            return TrialScheduler.CONTINUE
        continues = self.dispatcher.report(trial.trial_id, result["runs"])
        return TrialScheduler.CONTINUE if continues else TrialScheduler.STOP

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Delete Ray Tune's moving averages of the trial, 17 kB that it keeps to the end."""
        trial.run_metadata.metric_analysis.clear()
        trial.run_metadata.metric_n_steps.clear()


def train(packer: Packer, resources: Resources, console: Console) -> bool:
    """Train the pending runs of the packer's planner; return False if the sweep is interrupted.

    Raises:
        UserError: No node of the cluster can run a worker, or the store cannot be written.
    """
    scratch_folder = tempfile.TemporaryDirectory(prefix="sweep-")
    with scratch_folder as scratch, HeartbeatMonitor() as heartbeat_monitor:
        check_resources(resources)
        max_workers = count_max_workers(resources)
        dispatcher = Dispatcher(packer, console, max_workers, lambda: count_live_workers(resources))
        threads = max(1, int(resources.cpus))
        gpu = resources.gpus > 0
        trainable = tune.with_parameters(Worker, corpus=packer.corpus, threads=threads, gpu=gpu)
        tune.run(
            trainable,
            name="sweep",
            num_samples=-1,
            search_alg=dispatcher,
            scheduler=_PlannerScheduler(dispatcher),
            resources_per_trial={"cpu": resources.cpus, "gpu": resources.gpus},
            max_concurrent_trials=max_workers,
            storage_path=scratch,
            reuse_actors=True,
            callbacks=[heartbeat_monitor, _StopOnError(dispatcher)],
            raise_on_failed_trial=False,
            verbose=0,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        )
    if packer.planner.done:
        packer.planner.write_failures()
    return packer.planner.done
