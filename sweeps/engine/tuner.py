"""Ray Tune as the scheduler: it places trials and tells of their death; the agenda decides.

Tune's own search state, scheduler state and result files are not used for anything:
they live in a temporary folder and go with it. Nor is its way to start a trial again:
of a trial that dies between two runs it takes note twice, and gives it up.
"""

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeps.engine.cluster import Resources, cluster, places, refuse_impossible

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")

from ray import tune
from ray.tune import Callback
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from lmzoo.data.corpus import Corpus
from sweeps.engine.agenda import Agenda
from sweeps.engine.console import Console
from sweeps.engine.fused import Packer
from sweeps.engine.pulse import Pulses
from sweeps.engine.trial import Trial

if TYPE_CHECKING:
    from sweeps.engine.open_run import Report

MAX_FAILURES = 3
"""How often a trial that died is started again before its run counts as failed."""
START = 60.0
"""Seconds that an actor may take to start."""

# It would list all trials that died, though they were started again.
logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)


@dataclass
class _Pack:
    """What a trial was given."""

    config: dict[str, Any]
    going: set[str]
    """Its runs that have not ended."""
    deaths: int = 0


class _Jobs(Searcher):
    """Hands the agenda's jobs to Tune, packed.

    Tune would make of an error in here the failure of a trial, or a traceback. So it is kept,
    and `_Errors` ends the sweep with it.
    """

    def __init__(self, packer: Packer, console: Console, places: int) -> None:
        super().__init__(metric="loss", mode="min")
        self.packer, self.agenda, self.console = packer, packer.agenda, console
        self.places = places
        self.runs: dict[str, _Pack] = {}
        self.error: Exception | None = None
        self._lost: list[_Pack] = []

    def suggest(self, trial_id: str) -> Any:
        with self._kept():
            return self._suggest(trial_id)
        return Searcher.FINISHED

    def take(self, trial_id: str, reports: "Iterable[Report]") -> bool:
        """Take in what a trial tells of its runs; whether any of them goes on."""
        with self._kept():
            return self._take(trial_id, reports)
        return False

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  Ray's own signature
    ) -> None:
        if result and not error:
            self.take(trial_id, result["runs"])
        with self._kept():
            self._complete(trial_id, error=error)

    def _suggest(self, trial_id: str) -> Any:
        if self.error:
            return Searcher.FINISHED
        if self._lost:
            self.runs[trial_id] = self._lost.pop(0)
            return self.runs[trial_id].config
        pack = self.packer.next(idle=max(1, self.places - len(self.runs)))
        if not pack:
            return Searcher.FINISHED if self.agenda.done else None
        folders = [self.agenda.store.run(job.run).place.address for job in pack]
        fused = self.packer.fused(pack[0])
        config = {"folders": folders, "budget": pack[0].budget, "fused": fused}
        self.runs[trial_id] = _Pack(config, {job.run for job in pack})
        return config

    def _take(self, trial_id: str, reports: "Iterable[Report]") -> bool:
        known = trial_id in self.runs and not self.error
        going = self.runs[trial_id].going if known else set[str]()
        for run, epoch, loss, ended in reports:
            if run in going and (ended or not self.agenda.report(run, epoch, loss)):
                going.remove(run)
                self.console.end(self.agenda.end(run))
            elif run in going:
                self.console.epoch()
        return bool(going)

    def _complete(self, trial_id: str, *, error: bool) -> None:
        pack = self.runs.pop(trial_id, None)
        if pack is None or self.error:
            return
        pack.deaths += error
        if error and pack.going and pack.deaths <= MAX_FAILURES:
            self._lost.append(pack)
            return
        for run in sorted(pack.going):
            if len(pack.going) > 1:
                self.packer.again(run)
            else:
                failed = f"died {MAX_FAILURES + 1} times" if error else ""
                self.console.end(self.agenda.end(run, failed=failed))

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the first is the cause of what comes after it
            self.error = self.error or error

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the store has it all."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the store has it all."""


class _Errors(Callback):
    """Ends Tune with the error that the jobs have met: of a callback Tune lets it through."""

    def __init__(self, jobs: _Jobs) -> None:
        self.jobs = jobs

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.jobs.error:
            raise self.jobs.error


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


def train(
    agenda: Agenda, corpus: Corpus, resources: Resources, console: Console, fuse: int | None = None
) -> bool:
    """Work off the agenda; False if it was interrupted before everything was done.

    `fuse` is how many runs at most are trained as one program (0: none; None: what pays).

    Raises:
        UserError: no node of the cluster can ever hold a trial, or the store cannot be written.
    """
    scratch_folder = tempfile.TemporaryDirectory(prefix="sweep-")
    with cluster(), scratch_folder as scratch, Pulses() as pulses:
        refuse_impossible(resources)
        side_by_side = places(resources)
        jobs = _Jobs(Packer(agenda, corpus, most=fuse), console, side_by_side)
        threads = max(1, int(resources.cpus))
        gpu = resources.gpus > 0
        trainable = tune.with_parameters(Trial, corpus=corpus, threads=threads, gpu=gpu)
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
    if agenda.done:
        agenda.write_failures()
    return agenda.done
