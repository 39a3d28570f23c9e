"""Reports every run to Ray Tune's callbacks as a trial: W&B, MLflow, any other `tune.Callback`.

What Ray Tune places are workers, so the callbacks that a study names are called here. A run that
another worker continues is still one trial. A later sweep continues the trial under the same id,
which is the run's identity.

The callbacks run in a thread of their own, so that a slow one does not slow down the training. A
callback that raises an exception is not called again.
"""

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import lmzoo.cluster.connection  # noqa: F401  before Ray, because it sets Ray's environment variables
from lmzoo.describe.labels import run_name
from lmzoo.errors import UserError
from lmzoo.study.planned_run import PlannedRun

from ray.tune import Callback  # isort: skip
from ray.tune.experiment import Trial  # isort: skip

LOG = logging.getLogger("lmzoo.sweep")
TRAINING_ITERATION = "training_iteration"
"""The metric of Ray Tune that counts results."""

UNSAFE = r'[/()<>:"\\|?*]'
"""Characters that Ray Tune replaces in the names of its folders."""
HYPERPARAMETERS = ("study", "stage", "seed", "run", "corpus", "model", "recipe")
"""Parts of a run's config that are the config of its trial, nested as in `config.json`."""
NOT_METRICS = ("event", "epoch", "host", "device")
"""Keys of a record that a result leaves out; the epoch is `training_iteration`."""


def run_trial(run: PlannedRun, experiment: str, folder: Path) -> Trial:
    """Return a run as a trial of Ray Tune, whose files belong below `folder`."""
    name = run_name(run.config)
    if run.stage == "tune":  # the settings of a point have the same seed
        name += f" {run.index}"
    root = folder.absolute()
    own = f"{re.sub(UNSAFE, '_', name)[:60]} {run.id}"
    storage: Any = SimpleNamespace(  # what callbacks read of Ray Tune's `StorageContext`
        experiment_dir_name=experiment,
        experiment_fs_path=str(root),
        experiment_driver_staging_path=str(root),
        trial_dir_name=own,
        trial_fs_path=str(root / own),
        trial_driver_staging_path=str(root / own),
    )
    config = {key: run.config[key] for key in HYPERPARAMETERS if key in run.config}
    trial = Trial(
        "lmzoo",
        config={"point": run.display_label, **config},
        trial_id=run.id,
        storage=storage,
        evaluated_params=dict(run.config["setting"]),
        experiment_tag=name,
        trial_name_creator=lambda _: name,
        stub=True,  # there is no trainable of this name
    )
    trial.relative_logdir = own
    return trial


class Tracker:
    """Calls `callbacks` for the runs of a sweep; they write their files to `folder`.

    A study that is imported before Ray names functions that return a callback.

    Raises:
        UserError: A callback cannot be set up, such as W&B without an account.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback | Callable[[], Callback]],
        experiment: str,
        folder: Path,
    ) -> None:
        self._callbacks = [c if isinstance(c, Callback) else c() for c in callbacks]
        self._experiment, self._folder = experiment, folder
        self._trials: dict[str, Trial] = {}
        self._iteration = 0
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for callback in self._callbacks:
            try:
                callback.setup()
            except Exception as error:
                raise UserError(f"cannot set up {_describe(callback, error)}") from error
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)
        self._thread.start()

    def start(self, run: PlannedRun) -> None:
        """Report the start of a run; a run that another worker continues keeps its trial."""
        epoch = run.last_epoch
        self._put(lambda: self._start(run, epoch))

    def epoch(self, run: PlannedRun, record: Mapping[str, Any]) -> None:
        """Report the `epoch` event of a run, unless its epoch has been reported before."""
        self._put(lambda: self._epoch(run.id, record))

    def end(self, run: PlannedRun, test: Mapping[str, Any] | None) -> None:
        """Report how a run ended, with its `test` event if it has one."""
        status = run.status
        self._put(lambda: self._end(run.id, status, test or {}))

    def close(self, limit: float = 600.0) -> None:
        """Wait until the callbacks have seen all reports, at most `limit` seconds.

        The trial of a run that has not ended is closed as an error, so that its curve is saved.
        """
        self._queue.put(None)
        self._thread.join(limit)
        if self._thread.is_alive():
            names = ", ".join(type(callback).__name__ for callback in self._callbacks)
            left = self._queue.qsize()
            LOG.warning("%s: not done after %g s; %d reports are lost", names, limit, left)

    def _put(self, report: Callable[[], None]) -> None:
        if self._callbacks:
            self._queue.put(report)

    def _work(self) -> None:
        while report := self._queue.get():
            self._call("on_step_begin", iteration=self._iteration)
            report()
            self._iteration += 1
            self._call("on_step_end", iteration=self._iteration)
        for trial in list(self._trials.values()):
            self._end_trial(trial, failed=True)
        self._call("on_experiment_end")

    def _start(self, run: PlannedRun, epoch: int) -> None:
        if run.id in self._trials:
            return
        trial = run_trial(run, self._experiment, self._folder)
        try:
            trial.init_local_path()  # W&B's process changes to this folder
        except OSError as error:
            LOG.warning("%s is not tracked: %s", trial, error)
            return
        self._trials[run.id] = trial
        trial.set_status(Trial.RUNNING)
        self._call_for(trial, "on_trial_start")
        if epoch:
            trial.run_metadata.last_result = {TRAINING_ITERATION: epoch}
            self._call_for(trial, "on_trial_restore")

    def _epoch(self, run_id: str, record: Mapping[str, Any]) -> None:
        trial, epoch = self._trials.get(run_id), record["epoch"]
        if trial and epoch > trial.last_result.get(TRAINING_ITERATION, 0):
            metrics = {key: value for key, value in record.items() if key not in NOT_METRICS}
            self._result(trial, {**metrics, TRAINING_ITERATION: epoch, "done": False})

    def _end(self, run_id: str, status: str, test: Mapping[str, Any]) -> None:
        """Repeat the last result with the test losses, the status, and `STATUS: 1` for MLflow."""
        trial = self._trials.get(run_id)
        if trial is None:
            return
        losses = {f"test_{key}": test[key] for key in ("token", "sentence") if key in test}
        if TRAINING_ITERATION in trial.last_result:
            ending = {**losses, "status": status, status: 1, "done": True}
            self._result(trial, {**trial.last_result, **ending})
        self._end_trial(trial, failed=status == "failed")

    def _result(self, trial: Trial, result: dict[str, Any]) -> None:
        trial.run_metadata.last_result = {**result, "trial_id": trial.trial_id}
        self._call_for(trial, "on_trial_result", result=dict(trial.last_result))

    def _end_trial(self, trial: Trial, *, failed: bool) -> None:
        trial.set_status(Trial.ERROR if failed else Trial.TERMINATED)
        self._call_for(trial, "on_trial_error" if failed else "on_trial_complete")
        del self._trials[trial.trial_id]

    def _call_for(self, trial: Trial, hook: str, **info: Any) -> None:
        self._call(hook, iteration=self._iteration, trial=trial, **info)

    def _call(self, hook: str, **info: Any) -> None:
        """Call a hook of each callback; drop a callback that raises an exception."""
        for callback in list(self._callbacks):
            try:
                getattr(callback, hook)(trials=list(self._trials.values()), **info)
            except Exception as error:
                LOG.warning("not called again: %s", _describe(callback, error))
                LOG.debug("%s", hook, exc_info=error)
                self._callbacks.remove(callback)


def _describe(callback: Callback, error: Exception) -> str:
    """Return the callback's name and the first line of the error."""
    first, *_ = [*str(error).strip().splitlines(), ""]
    return f"{type(callback).__name__}: {type(error).__name__}: {first}"
