"""Who is informed of what the runs do: the console, the trackers, and a study's own listeners.

class Slack:
    def end(self, run, test):
        post(f"{run.display_label} {run.status} {test and test['token']}")

STUDY = Study(..., listeners=(Slack(),))

The trackers that `--track` names, W&B and MLflow, show every run with its config and its curves. A
run that another worker continues stays one run of the tracker, and so does one that a later sweep
continues: W&B gets the run's identity as its id, MLflow as a tag.
"""

import importlib.util
import logging
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from lmzoo.base.errors import UserError, describe_error
from lmzoo.lab.store.labels import run_name
from lmzoo.lab.store.records import Record
from lmzoo.lab.study.planned_run import PlannedRun

LOG = logging.getLogger("lmzoo.lab.sweep")


class Listeners:
    """Calls those methods of each listener that it has; one that raises is not called again.

    A run has `id`, `display_label`, `stage` (tune or confirm), `config`, `status` and `curve`.
    """

    def __init__(self, listeners: Sequence[Any] = ()) -> None:
        self.listeners = [*listeners]
        self._started = set[str]()

    def start(self, run: PlannedRun) -> None:
        """Say that a run starts, once in a sweep."""
        if run.id not in self._started:
            self._started.add(run.id)
            self._call("start", run)

    def epoch(self, run: PlannedRun, record: Record) -> None:
        """Give the `epoch` event of a run, which has losses and seconds."""
        self._call("epoch", run, record)

    def end(self, run: PlannedRun, test: Record | None) -> None:
        """Say that a run has ended, with its `test` event if it has one."""
        self._call("end", run, test)

    def _call(self, method: str, *arguments: Any) -> None:
        for listener in [*self.listeners]:
            try:
                if own := getattr(listener, method, None):
                    own(*arguments)
            except (Exception, SystemExit) as error:
                self.listeners.remove(listener)
                name = type(listener).__name__
                LOG.warning("listener %s is not called again: %s", name, describe_error(error))


CONFIG = ("study", "stage", "seed", "run", "corpus", "model", "recipe")
"""Parts of a run's config that a tracker shows."""
NOT_METRICS = ("event", "epoch", "host", "device", "metrics")
"""Keys of a record that are not shown; the epoch is the step, a program's metrics have names."""


class Tracker(ABC):
    """Shows the runs of a sweep in a thread of its own, so that it does not slow down the training.

    A tracker that raises an exception is not called again.
    """

    def __init__(self) -> None:
        self._opened: dict[str, Any] = {}
        """Identity of an open run -> what the tracker opened for it."""
        self._last: dict[str, int] = {}
        """Identity of a run -> the last epoch that was shown."""
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)
        self._thread.start()

    @abstractmethod
    def _open(self, run_id: str, name: str, config: dict[str, Any]) -> Any:
        """Open a run, or continue the one of this identity."""

    @abstractmethod
    def _show(self, opened: Any, metrics: dict[str, Any], epoch: int) -> None:
        """Show what belongs to an epoch."""

    @abstractmethod
    def _close(self, opened: Any, status: str, *, failed: bool) -> None:
        """Close a run: finished, pruned, diverged, failed or interrupted."""

    def start(self, run: PlannedRun) -> None:
        """Show the start of a run; one that another worker continues is open already."""
        # The tune runs of a point have the same seed.
        name = run_name(run.config) + (f" {run.index}" if run.stage == "tune" else "")
        config = {key: run.config[key] for key in CONFIG if key in run.config}
        config["point"], epoch = run.display_label, run.last_epoch

        def start() -> None:
            if run.id not in self._opened:
                self._opened[run.id] = self._open(run.id, name, config)
                self._last[run.id] = epoch

        self._queue.put(start)

    def epoch(self, run: PlannedRun, record: Mapping[str, Any]) -> None:
        """Show the `epoch` event of a run, unless its epoch has been shown before."""
        reported = record.get("metrics")
        of_program = () if reported is None else ("valid_token",)  # its metric, as a loss
        own = {k: x for k, x in record.items() if k not in (*NOT_METRICS, *of_program)}
        metrics = {**(reported or {}), **own}

        def show() -> None:
            if run.id in self._opened and record["epoch"] > self._last[run.id]:
                self._show(self._opened[run.id], metrics, record["epoch"])
                self._last[run.id] = record["epoch"]

        self._queue.put(show)

    def end(self, run: PlannedRun, test: Mapping[str, Any] | None) -> None:
        """Show how a run ended, with its `test` event if it has one."""
        status = run.status
        losses = {f"test_{key}": test[key] for key in ("token", "sentence") if test and key in test}
        if test and "metrics" in test:  # of a program, by the names that it gave
            names = (run.config["model"][key] for key in ("test_metric", "metric"))
            name = next((name for name in names if name in test["metrics"]), None)
            losses = {f"best_epoch/{name}": test["metrics"][name]} if name else {}
        self._queue.put(lambda: self._end(run.id, status, losses))

    def close(self, limit: float = 600.0) -> None:
        """Wait until everything is shown, at most `limit` seconds."""
        self._queue.put(None)
        self._thread.join(limit)
        if self._thread.is_alive():
            name, left = type(self).__name__, self._queue.qsize()
            LOG.warning("%s: not done after %g s; %d reports are lost", name, limit, left)

    def _end(self, run_id: str, status: str, losses: dict[str, Any]) -> None:
        if run_id in self._opened:
            opened = self._opened.pop(run_id)
            if losses:
                self._show(opened, losses, self._last[run_id])
            self._close(opened, status, failed=status in ("failed", "interrupted"))

    def _work(self) -> None:
        try:
            while report := self._queue.get():
                report()
            for run_id in list(self._opened):
                self._end(run_id, "interrupted", {})
        except Exception as error:
            LOG.warning("not called again: %s: %s", type(self).__name__, describe_error(error))


class Wandb(Tracker):
    """W&B, which writes its files to `folder`; the experiment is the project and the group."""

    def __init__(self, experiment: str, folder: Path) -> None:
        import wandb

        local = os.environ.get("WANDB_MODE") in ("offline", "dryrun", "disabled")
        if not local and not wandb.login(prompt=False, verify=False):
            raise UserError("no account; set WANDB_API_KEY, or WANDB_MODE=offline")
        folder.mkdir(parents=True, exist_ok=True)
        self._init = partial(
            wandb.init,
            project=os.environ.get("WANDB_PROJECT", experiment),
            group=experiment,
            dir=folder,
            resume="allow",
            reinit="create_new",  # many runs are open at the same time
            settings=wandb.Settings(console="off", silent=True),
        )
        super().__init__()

    def _open(self, run_id: str, name: str, config: dict[str, Any]) -> Any:
        return self._init(id=run_id, name=name, config=config)

    def _show(self, opened: Any, metrics: dict[str, Any], epoch: int) -> None:
        opened.log(metrics, step=epoch)

    def _close(self, opened: Any, status: str, *, failed: bool) -> None:
        opened.summary["status"] = status
        opened.finish(exit_code=int(failed))


class MLflow(Tracker):
    """MLflow; it gets one request for an epoch."""

    IDENTITY = "lmzoo.run"
    """Tag with the identity of a run."""
    REFUSED = re.compile(r"[^\w\-./: ]", re.ASCII)
    """Characters that MLflow refuses in a name."""

    def __init__(self, experiment: str, folder: Path) -> None:
        from mlflow.tracking import MlflowClient

        self._client = client = MlflowClient()
        found = client.get_experiment_by_name(experiment)
        self._experiment = found.experiment_id if found else client.create_experiment(experiment)
        super().__init__()

    def _open(self, run_id: str, name: str, config: dict[str, Any]) -> Any:
        from mlflow.entities import Param

        query = f"tags.`{self.IDENTITY}` = '{run_id}'"
        if found := self._client.search_runs([self._experiment], query, max_results=1):
            self._client.update_run(found[0].info.run_id, "RUNNING")
            return found[0].info.run_id
        tags = {self.IDENTITY: run_id}
        opened = self._client.create_run(self._experiment, tags=tags, run_name=name).info.run_id
        params = [Param(self._name(key), str(value)) for key, value in flattened(config)]
        self._client.log_batch(opened, params=params)
        return opened

    def _show(self, opened: Any, metrics: dict[str, Any], epoch: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        numbers = [(self._name(k), x) for k, x in metrics.items() if isinstance(x, int | float)]
        self._client.log_batch(opened, [Metric(key, x, now, epoch) for key, x in numbers])

    def _name(self, key: str) -> str:
        return self.REFUSED.sub("_", key)

    def _close(self, opened: Any, status: str, *, failed: bool) -> None:
        self._client.set_tag(opened, "status", status)
        self._client.set_terminated(opened, "FAILED" if failed else "FINISHED")


TRACKERS: dict[str, Callable[[str, Path], Tracker]] = {"wandb": Wandb, "mlflow": MLflow}
"""Value of `--track`, which is also the module that it needs."""


def check_trackers(names: Sequence[str]) -> None:
    """Raise a `UserError` if a name is no tracker, or its package is not installed."""
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"--track {name!r} is unknown; choose from {', '.join(TRACKERS)}")
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--track {name}: {name} is not installed; run: pip install {name}")


def open_tracker(name: str, experiment: str, folder: Path) -> Tracker:
    """Return a tracker; a `UserError` says why it cannot be set up, as without an account."""
    try:
        return TRACKERS[name](experiment, folder)
    except Exception as error:
        raise UserError(f"--track {name} cannot be set up: {error}") from error


def flattened(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of a nested mapping: `recipe/lr`."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{path}{key}/")
        else:
            yield f"{path}{key}", value
