"""Ray Tune as the scheduler: it places trials and restarts the dead; the agenda decides.

Tune's own search state, scheduler state and result files are not used for anything:
they live in a temporary folder and go with it.
"""

import contextlib
import logging
import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
if not os.environ.get("RAY_ADDRESS"):
    # A cluster of our own listens on loopback only, and nobody else holds its token. Ray
    # reads these once, when it is imported; the odd name is its switch for one machine.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)

import ray
from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from lmzoo.data.corpus import Corpus
from lmzoo.errors import UserError
from sweeps.engine.agenda import Agenda
from sweeps.engine.console import Console
from sweeps.engine.trial import Trial

MAX_FAILURES = 3
"""How often a trial that died is started again before its run counts as failed."""


@dataclass(frozen=True)
class Resources:
    """What each trial gets, and how many run at a time (0: as many as fit)."""

    cpus: float = 1.0
    gpus: float = 0.0
    concurrent: int = 0


class _Jobs(Searcher):
    """Hands the agenda's jobs to Tune."""

    def __init__(self, agenda: Agenda, console: Console) -> None:
        super().__init__(metric="loss", mode="min")
        self.agenda, self.console = agenda, console
        self.runs: dict[str, str] = {}

    def suggest(self, trial_id: str) -> Any:
        job = self.agenda.next()
        if job is None:
            return Searcher.FINISHED if self.agenda.done else None
        self.runs[trial_id] = job.run
        folder = str(self.agenda.store.run(job.run).path.resolve())
        return {"folder": folder, "budget": job.budget}

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  Ray's own signature
    ) -> None:
        run = self.runs.pop(trial_id, None)
        if run is not None:
            job = self.agenda.end(run, failed=f"died {MAX_FAILURES + 1} times" if error else "")
            self.console.end(job)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the store has it all."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the store has it all."""


class _Judge(FIFOScheduler):
    """Asks the agenda after each epoch whether a run goes on."""

    def __init__(self, jobs: _Jobs) -> None:
        super().__init__()
        self.jobs = jobs

    def on_trial_result(
        self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]
    ) -> str:
        run = self.jobs.runs.get(trial.trial_id)
        if run is None or result.get("done"):
            return TrialScheduler.CONTINUE
        goes_on = self.jobs.agenda.report(run, result["epoch"], result["loss"])
        self.jobs.console.epoch()
        return TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP


def train(agenda: Agenda, corpus: Corpus, resources: Resources, console: Console) -> bool:
    """Work off the agenda; False if it was interrupted before everything was done.

    Raises:
        UserError: no node of the cluster can ever hold a trial.
    """
    with _cluster(), tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
        _refuse_impossible(resources)
        jobs = _Jobs(agenda, console)
        threads = max(1, int(resources.cpus))
        trainable = tune.with_parameters(Trial, corpus=corpus, threads=threads)
        tune.run(
            trainable,
            name="sweep",
            num_samples=-1,
            search_alg=jobs,
            scheduler=_Judge(jobs),
            resources_per_trial={"cpu": resources.cpus, "gpu": resources.gpus},
            max_concurrent_trials=resources.concurrent or None,
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


@contextlib.contextmanager
def _cluster() -> Iterator[None]:
    """The running cluster that `RAY_ADDRESS` names, or one of our own on loopback."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    if os.environ.get("RAY_ADDRESS"):
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError as error:
            address = os.environ["RAY_ADDRESS"]
            raise UserError(f"no Ray cluster answers at RAY_ADDRESS={address!r}: {error}") from None
    else:
        ray.init(include_dashboard=False, **quiet)
    # Ray installs a handler of its own; SIGTERM should stop as gracefully as Ctrl-C does.
    before = signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        ray.shutdown()


def _refuse_impossible(resources: Resources) -> None:
    for kind, asked in (("CPU", resources.cpus), ("GPU", resources.gpus)):
        most = max(
            (node["Resources"].get(kind, 0) for node in ray.nodes() if node["Alive"]), default=0
        )
        if asked > most:
            flag = f"--{kind.lower()}s-per-trial"
            raise UserError(
                f"a trial asks for {asked:g} {kind}, the largest node of the cluster has {most:g}; "
                f"lower {flag}"
            )
