"""Ray Tune as the scheduler: it places trials and restarts the dead; the agenda decides.

Tune's own search state, scheduler state and result files are not used for anything:
they live in a temporary folder and go with it.
"""

import os
import tempfile
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sweeps.engine.cluster import Resources, cluster, places, refuse_impossible

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")

from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from lmzoo.data.corpus import Corpus
from sweeps.engine.agenda import Agenda
from sweeps.engine.console import Console
from sweeps.engine.fused import Packer
from sweeps.engine.trial import Trial

if TYPE_CHECKING:
    from sweeps.engine.open_run import Report

MAX_FAILURES = 3
"""How often a trial that died is started again before its run counts as failed."""
START = 60.0
"""Seconds that an actor may take to start."""


class _Jobs(Searcher):
    """Hands the agenda's jobs to Tune, packed."""

    def __init__(self, packer: Packer, console: Console, places: int) -> None:
        super().__init__(metric="loss", mode="min")
        self.packer, self.agenda, self.console = packer, packer.agenda, console
        self.places = places
        self.runs: dict[str, set[str]] = {}

    def suggest(self, trial_id: str) -> Any:
        pack = self.packer.next(idle=max(1, self.places - len(self.runs)))
        if not pack:
            return Searcher.FINISHED if self.agenda.done else None
        self.runs[trial_id] = {job.run for job in pack}
        folders = [self.agenda.store.run(job.run).place.address for job in pack]
        fused = self.packer.fused(pack[0])
        return {"folders": folders, "budget": pack[0].budget, "fused": fused}

    def take(self, trial_id: str, reports: "Iterable[Report]") -> bool:
        """Take in what a trial tells of its runs; whether any of them goes on."""
        going = self.runs.get(trial_id, set())
        for run, epoch, loss, ended in reports:
            if run in going and (ended or not self.agenda.report(run, epoch, loss)):
                going.remove(run)
                self.console.end(self.agenda.end(run))
            elif run in going:
                self.console.epoch()
        return bool(going)

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  Ray's own signature
    ) -> None:
        if result and not error:
            self.take(trial_id, result["runs"])
        left = self.runs.pop(trial_id, set())
        for run in sorted(left):
            if len(left) > 1:
                self.packer.again(run)
            else:
                failed = f"died {MAX_FAILURES + 1} times" if error else ""
                self.console.end(self.agenda.end(run, failed=failed))

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the store has it all."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the store has it all."""


class _Judge(FIFOScheduler):
    """Asks the agenda after each epoch whether a run goes on."""

    def __init__(self, jobs: _Jobs) -> None:
        super().__init__()
        self.jobs = jobs
        self.waiting: dict[str, float] = {}

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """The trial that takes over an actor that has become free.

        Tune would give it to the oldest, and end the actor that was being started for it
        on another node: where runs are shorter than that takes, no second node ever came
        to work. The newest has none yet; the oldest goes first when it has waited long.
        """
        pending = [t for t in tune_controller.get_trials() if t.status == TuneTrial.PENDING]
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


def train(
    agenda: Agenda, corpus: Corpus, resources: Resources, console: Console, fuse: int | None = None
) -> bool:
    """Work off the agenda; False if it was interrupted before everything was done.

    `fuse` is how many runs at most are trained as one program (0: none; None: what pays).

    Raises:
        UserError: no node of the cluster can ever hold a trial.
    """
    with cluster(), tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
        refuse_impossible(resources)
        side_by_side = places(resources)
        jobs = _Jobs(Packer(agenda, corpus, most=fuse), console, side_by_side)
        threads = max(1, int(resources.cpus))
        trainable = tune.with_parameters(Trial, corpus=corpus, threads=threads)
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
            max_failures=MAX_FAILURES,
            raise_on_failed_trial=False,
            verbose=0,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        )
    if agenda.done:
        agenda.write_failures()
    return agenda.done
