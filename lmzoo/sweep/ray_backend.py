"""Ray Tune as the scheduler: it places trials and tells of their death; the agenda decides.

Tune's own search state, scheduler state and result files are not used for anything:
they live in a temporary folder and go with it. Nor is its way to start a trial again:
of a trial that dies between two runs it takes note twice, and gives it up.
"""

import logging
import tempfile
import time
from typing import Any

from lmzoo.sweep.cluster import Resources, live_workers, max_workers, refuse_impossible
from lmzoo.sweep.dispatch import Dispatcher

from ray import tune  # isort: skip  what it reads of the environment is set by now
from ray.tune import Callback
from ray.tune.execution.class_cache import DEFAULT_ENV_VARS
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from lmzoo.sweep.console import Console
from lmzoo.sweep.heartbeat import HeartbeatMonitor
from lmzoo.sweep.packing import Packer
from lmzoo.sweep.worker import Worker

START = 60.0
"""Seconds that an actor may take to start."""

# An environment that an actor has to itself, for a library that is not used here: Ray would leave
# the processes idle that it started with itself, and start others, which takes 0.7 s more.
DEFAULT_ENV_VARS.clear()
# It would list all trials that died, though they were started again.
logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)


class _Errors(Callback):
    """Ends Tune with the error that the jobs have met: of a callback Tune lets it through."""

    def __init__(self, jobs: Dispatcher) -> None:
        self.jobs = jobs

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.jobs.error:
            raise self.jobs.error


class _Judge(FIFOScheduler):
    """Asks the agenda after each epoch whether a run goes on."""

    def __init__(self, jobs: Dispatcher) -> None:
        super().__init__()
        self.jobs = jobs
        self.waiting: dict[str, float] = {}

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """The trial that takes over an actor that has become free.

        Tune would give it to the oldest, and end the actor that was being started for it
        on another node: where runs are shorter than that takes, no second node ever came
        to work. The newest has none yet; the oldest goes first when it has waited long.
        """
        live = {t.trial_id: t for t in tune_controller.get_live_trials()}  # not all that ever were
        waiting = (live[name] for name in self.jobs.runs if name in live)
        pending = [trial for trial in waiting if trial.status == TuneTrial.PENDING]
        if not pending:
            return None
        since = self.waiting.setdefault(pending[0].trial_id, time.monotonic())
        return pending[0] if time.monotonic() - since > START else pending[-1]

    def on_trial_result(
        self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]
    ) -> str:
        if result.get("done"):
            return TrialScheduler.CONTINUE
        goes_on = self.jobs.take(trial.trial_id, result["runs"])
        return TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP

    def on_trial_complete(
        self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]
    ) -> None:
        """Forget Tune's moving averages of a trial that is over: 17 kB each, kept to the end."""
        trial.run_metadata.metric_analysis.clear()
        trial.run_metadata.metric_n_steps.clear()


def train(packer: Packer, resources: Resources, console: Console) -> bool:
    """Work off its agenda on Ray, which runs; False if interrupted before everything was done.

    Raises:
        UserError: no node of the cluster can ever hold a trial, or the store cannot be written.
    """
    scratch_folder = tempfile.TemporaryDirectory(prefix="sweep-")
    with scratch_folder as scratch, HeartbeatMonitor() as pulses:
        refuse_impossible(resources)
        side_by_side = max_workers(resources)
        jobs = Dispatcher(packer, console, side_by_side, lambda: live_workers(resources))
        threads = max(1, int(resources.cpus))
        gpu = resources.gpus > 0
        trainable = tune.with_parameters(Worker, corpus=packer.corpus, threads=threads, gpu=gpu)
        tune.run(
            trainable,
            name="sweep",
            num_samples=-1,
            search_alg=jobs,
            scheduler=_Judge(jobs),
            resources_per_trial={"cpu": resources.cpus, "gpu": resources.gpus},
            max_concurrent_trials=side_by_side,
            storage_path=scratch,
            reuse_actors=True,
            callbacks=[pulses, _Errors(jobs)],
            raise_on_failed_trial=False,
            verbose=0,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        )
    if packer.agenda.done:
        packer.agenda.write_failures()
    return packer.agenda.done
