"""`--engine tune`: one trial of Ray Tune is one run.

The planner is the search algorithm and the scheduler of a `tune.Tuner`: `RunSearch` suggests the
next pending run; `RunScheduler` pauses one that waits for others at a rung, and stops one that is
pruned. So Tune's checkpoints, `ResultGrid`, callbacks, console, TensorBoard and `Tuner.restore`
work as in any Tuner. `RunTrial` trains one run, without packs.

The study store has all state. Tune's own files are in STUDY/tune/N. Another account that can write
there could plant a pickle, so an interrupted sweep is restored from the last N only if `trust.py`
has the digest of its files; else, and after a kill, another N begins. A restored trial that is
behind its run reports what is missing; a run that Tune's snapshot lacks gets a new trial.
"""

import contextlib
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from lmzoo.base.errors import UserError, described_output
from lmzoo.base.foreign import read_regular
from lmzoo.base.restored import variables
from lmzoo.base.stops import STOPS
from lmzoo.base.version import check_software, software
from lmzoo.lab.cluster.capacity import Capacity
from lmzoo.lab.cluster.head_store import find_store, write_nonce
from lmzoo.lab.store import records as files
from lmzoo.lab.store.labels import curves_name
from lmzoo.lab.store.local import Store, temporary_folder
from lmzoo.lab.store.trust import digest_of, is_trusted, trust
from lmzoo.lab.store.user_code import import_shipped
from lmzoo.lab.store.writer import LOG
from lmzoo.lab.study.planned_run import Answer, PlannedRun
from lmzoo.lab.study.trainable import open_door
from lmzoo.lab.sweep.messages import Job

if TYPE_CHECKING:
    from lmzoo.lab.sweep.fleet.fleet import Fleet
    from lmzoo.lab.sweep.worker.pack import TrainingRun

NUMBERS = {"epoch": "epoch", "train_token": "train", "valid_token": "valid", "test/token": "test"}
VARIABLES = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the columns of the console can be chosen
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `lmzoo/base/stops.py` has one
}
BEGUN = "begun"  # a file that is there while an experiment has not ended


class RunTrial(tune.Trainable):
    """Trains one run of the study; Tune uses its process for one run after another."""

    def setup(self, config: dict[str, Any], **given: Any) -> None:
        """Open the store and set up the device; `given` are the parameters of `train` below."""
        check_software(given["software"])
        if given["code"]:
            import_shipped(given["code"])  # before `lmzoo.zoo`, which imports installed plugins
        tempfile.tempdir = str(temporary_folder("trial"))  # where Tune makes checkpoints
        self._store = find_store(given["address"], given["nonce"], None, "")
        self._trainer = open_door().make_trainer(*given["trainer"])
        self._lock = self._store.lock(files.WORKER_LOCK.format(secrets.token_hex(4)))
        self._run: TrainingRun | None = None
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Go on with another run."""
        if self._run is not None:
            self._run.close()
        self.config, self._run = new_config, None
        self._reports: list[files.Record] = []
        return True

    def step(self) -> dict[str, Any]:
        """Report the next epoch: one that is in the folder already, or a new one."""
        run = self._run = self._run or self._open()
        if not self._reports and not run.is_trained and not run.has_ended:
            run.run.train_epoch(run.budget)
            self._reports = [run.save_epoch(packed=False)[1]]
        if run.is_trained and not run.has_ended:
            run.end()
        record = (self._reports or files.epoch_records(run.run.records)[-1:]).pop(0)
        result = {name: value for name, value in record.items() if name != "event"}
        if self._reports or not run.has_ended:
            return result
        end = run.ended()
        return {**result, "done": True, "status": end.status, "why": end.reason, "test": end.test}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Copy the run's folder, so that `lmzoo.load_run` reads the checkpoint."""
        for name in (files.CONFIG, files.RECORDS, files.CHECKPOINT):
            if (data := (self._store / self.config["run"]).read(name)) is not None:
                Path(checkpoint_dir, name).write_bytes(data)

    def restore(self, checkpoint_path: Any) -> None:
        """Go on counting: the run's folder has the state, and no file of Tune's is unpickled."""
        self._iteration = checkpoint_path.metrics.get("training_iteration", 0)
        self._time_total = checkpoint_path.metrics.get("time_total_s", 0.0)

    def cleanup(self) -> None:
        """Close the run, and release the lock that says that this process may write."""
        self.reset_config(self.config)
        self._lock.close()

    def _open(self) -> "TrainingRun":
        from lmzoo.lab.sweep.worker.pack import TrainingRun

        config = {k: x for k, x in self.config.items() if k not in ("budget", "known")}
        known = self.config["known"] + self.iteration  # epochs that were reported
        folder = files.RunFolder(self._store / config["run"])
        job = Job(config, self.config["budget"], known, is_new=False)
        run = TrainingRun(folder, job, self._trainer, self._store, None, curves=False)
        self._reports = [record for _, record in run.unreported]
        return run


class RunScheduler(FIFOScheduler):
    """Starts, continues, pauses and stops trials as the planner decides."""

    experiment: Path
    live: ClassVar["RunScheduler"]  # Tune pickles it with an experiment, and gets this one back

    def __init__(self, fleet: "Fleet", capacity: Capacity) -> None:
        super().__init__()
        RunScheduler.live = self
        self.planner, self.listeners, self._capacity = fleet.planner, fleet.listeners, capacity
        self.trials: dict[str, Trial] = {}  # the last one of each run
        self.running: dict[str, PlannedRun] = {}
        self._pruned: set[str] = set()  # their trials are to be stopped

    def __reduce__(self) -> Any:
        return getattr, (RunScheduler, "live")

    def next(self) -> PlannedRun | None:
        """Return the run that starts next; None: there is none, or no room for it."""
        room = len(self.running) < max(1, self._capacity.limit())
        return next(iter(self.planner.ready()), None) if room else None

    def start(self, run: PlannedRun) -> None:
        self.planner.start(run)
        self.running[run.id] = run
        self.listeners.start(run)

    def end(
        self, run: PlannedRun, status: str, why: str = "", test: files.Record | None = None
    ) -> None:
        """Give the end of a running run to the planner."""
        del self.running[run.id]
        self.planner.end(run.id, status, why, test["token"] if test else None)
        self.listeners.end(run, test)

    def is_paused(self, run_id: str) -> bool:
        """Whether a run has a trial that waits."""
        return run_id in self.trials and self.trials[run_id].status == Trial.PAUSED

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Note the trial of a run; a restored one starts only if its run is ready."""
        run_id = trial.config["run"]
        if trial.status != Trial.PENDING:
            return
        self.trials[run_id] = trial
        if run_id not in self.running:
            run = self.planner.find(run_id)
            if run in self.planner.ready():
                self.start(run)
            elif run is None:  # the study no longer has it
                trial.set_status(Trial.TERMINATED)
            elif not run.status:
                trial.set_status(Trial.PAUSED)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if (run := self.running.get(trial.config["run"])) is None:
            return TrialScheduler.CONTINUE  # it ended before an interruption; this is the rest
        answer = self._report(run, result)
        if answer is Answer.WAIT:
            del self.running[run.id]
            self.planner.requeue(run.id, saved=True)
            return TrialScheduler.PAUSE
        if answer is Answer.PRUNE:
            self._pruned.add(run.id)
            return TrialScheduler.STOP
        return TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Any) -> None:
        if (run := self.running.get(trial.config["run"])) is None:
            return
        if run.id in self._pruned:
            self.planner.store.prune(run.id, run.last_epoch)
            self.end(run, "pruned")
        else:
            self._report(run, result)
            self.end(run, result["status"], result["why"], _below("test/", result) or None)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """End a run that has failed too often."""
        run = self.running.get(trial.config["run"])
        if run and not trial.should_recover():
            text = str(trial.get_error() or "its process died").strip()
            self.planner.store.run(run.id).store.write(files.TRACEBACK, text.encode())
            *above, last = text.splitlines()
            self.end(run, "failed", described_output([*above, last.split(". ")[0]]))

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the paused trial whose run is next; stop those whose runs were pruned."""
        self.planner.store.check_lock()
        if STOPS.requested.is_set():  # Tune asks here several times a second
            raise KeyboardInterrupt
        for run in self.planner.new_pruned():
            self._pruned.add(run.id)
            self.listeners.end(run, None)
        for run_id in [*filter(self.is_paused, self._pruned)]:
            tune_controller.stop_trial(self.trials[run_id])
        run = self.next()
        if run is None or not self.is_paused(run.id):
            return None
        self.start(run)
        return self.trials[run.id]

    def _report(self, run: PlannedRun, result: dict[str, Any]) -> Answer:
        record = {"event": "epoch", **result, "metrics": _below("metrics/", result)}
        if record["epoch"] > run.last_epoch or record["valid_token"] is None:
            self.listeners.epoch(run, record)
        return self.planner.report(run.id, record)


class RunSearch(Searcher):
    """Suggests the pending runs of the planner that have no trial."""

    def suggest(self, trial_id: str) -> Any:
        """Return the config of a run; None while the planner waits for others."""
        scheduler = RunScheduler.live
        if scheduler.planner.done:
            return Searcher.FINISHED
        run = scheduler.next()
        if run is None or scheduler.is_paused(run.id):
            return None
        scheduler.start(run)
        return {**run.config, "budget": run.budget, "known": run.last_epoch}

    def on_trial_complete(self, trial_id: str, *results: Any, **how: Any) -> None:
        """Do nothing: the scheduler hears of it."""

    def save(self, checkpoint_path: str) -> None:
        """Write an empty file: the study store has all state."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the study store has all state."""


def _below(prefix: str, flat: dict[str, Any]) -> dict[str, Any]:
    return {k.removeprefix(prefix): x for k, x in flat.items() if k.startswith(prefix)}


def _digest(experiment: Path) -> str:
    """Return the digest of the files that `Tuner.restore` unpickles, and of their place.

    It is "" if there is none, or if another account may write there.
    """
    with contextlib.suppress(OSError, UserError):
        place = experiment.parent.lstat()
        if place.st_uid == os.geteuid() and not place.st_mode & 0o022:
            files = [path for path in experiment.iterdir() if not path.is_dir()]
            return digest_of((str(path), read_regular(path)) for path in files)
    return ""


@contextlib.contextmanager
def _unread_errors() -> Iterator[None]:
    """Let Tune unpickle no error of a trial, which is in the store; its text is there, too."""
    read, Trial.get_pickled_error = Trial.get_pickled_error, lambda self: None
    try:
        yield
    finally:
        Trial.get_pickled_error = read


def _tuner(trainable: Any, scheduler: RunScheduler, folder: Path) -> tune.Tuner:
    names = (path.parent.name for path in folder.glob("*/experiment_state-*.json"))
    last = max((int(name) for name in names if name.isdecimal()), default=0)
    scheduler.experiment = folder / str(last)
    if (folder / BEGUN).exists():
        if is_trusted(_digest(scheduler.experiment)):
            with contextlib.suppress(Exception):  # a file was damaged before
                return tune.Tuner.restore(str(scheduler.experiment), trainable)
        LOG.warning("%s is not as this account left it: another begins", scheduler.experiment)
    scheduler.experiment = folder / str(last + 1)
    folder.mkdir(mode=0o700, exist_ok=True)
    Store(folder).write(BEGUN, b"")
    tuning = tune.TuneConfig(
        num_samples=-1,
        search_alg=RunSearch(),
        scheduler=scheduler,
        reuse_actors=True,
        trial_name_creator=lambda trial: curves_name(trial.config),
        trial_dirname_creator=lambda trial: f"{trial.config['run']}-{trial.trial_id}",
    )
    running = tune.RunConfig(
        name=str(last + 1),
        storage_path=str(folder),
        callbacks=[x for x in scheduler.listeners.listeners if isinstance(x, tune.Callback)],
        failure_config=tune.FailureConfig(max_failures=2),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1, checkpoint_at_end=True),
        progress_reporter=tune.CLIReporter(metric_columns=NUMBERS, parameter_columns=["stage"]),
        verbose=1,
    )
    return tune.Tuner(trainable, tune_config=tuning, run_config=running)


def train(fleet: "Fleet", capacity: Capacity) -> bool:
    """Train the pending runs of the fleet's planner; return False if the sweep is interrupted."""
    planner, resources, store = fleet.planner, capacity.resources, fleet.planner.store.store
    if type(store) is not Store:
        raise UserError(f"--engine tune needs a folder that all nodes see; {store} is a bucket")
    trainable = tune.with_parameters(
        RunTrial,
        address=store.address,
        nonce=write_nonce(store),
        code=planner.code,
        software=software(),
        trainer=(fleet.packer.corpus, max(1, int(resources.cpus)), resources.gpus or 0.0),
    )
    where: Any = {"bundle_label_selector": [resources.selector]} if resources.selector else {}
    placed = tune.with_resources(trainable, tune.PlacementGroupFactory([resources.bundle], **where))
    folder = store.path.resolve() / files.TUNE
    # stdout is for the answer.
    with STOPS.deferred(), variables(VARIABLES), contextlib.redirect_stdout(sys.stderr):
        scheduler = RunScheduler(fleet, capacity)
        tuner = _tuner(placed, scheduler, folder)
        try:
            with _unread_errors():
                tuner.fit()
            (folder / BEGUN).unlink()
        finally:
            trust(_digest(scheduler.experiment))  # if it was interrupted
    planner.write_failures()
    return planner.done
