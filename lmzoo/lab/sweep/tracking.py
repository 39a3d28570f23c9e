"""`--track wandb`: W&B shows every run with its config and its curves.

A run that another worker or a later sweep continues stays one run: W&B gets its identity as the id.
"""

import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from lmzoo.base.errors import UserError, describe_error
from lmzoo.lab.store.labels import run_name
from lmzoo.lab.study.planned_run import PlannedRun

LOG = logging.getLogger("lmzoo.lab.sweep")
CONFIG = ("study", "stage", "seed", "run", "corpus", "model", "recipe")
"""Parts of a run's config that a tracker shows."""
NOT_METRICS = ("event", "epoch", "host", "device", "metrics")
"""Keys of a record that are not shown; the epoch is the step, a program's metrics have names."""


class Tracker:
    """Shows the runs of a sweep in a thread of its own, so that it does not slow down the training.

    After an exception W&B is not called again.
    """

    def __init__(self, experiment: str, folder: Path) -> None:
        """W&B writes its files to `folder`; the experiment is the project and the group."""
        import wandb

        local = os.environ.get("WANDB_MODE") in ("offline", "dryrun", "disabled")
        if not local and not wandb.login(prompt=False, verify=False):
            raise UserError("no account; set WANDB_API_KEY, or WANDB_MODE=offline")
        folder.mkdir(parents=True, exist_ok=True)
        self._init: Any = partial(
            wandb.init,
            project=os.environ.get("WANDB_PROJECT", experiment),
            group=experiment,
            dir=folder,
            resume="allow",
            reinit="create_new",  # many runs are open at the same time
            settings=wandb.Settings(console="off", silent=True),
        )
        self._begin()

    def _begin(self) -> None:
        self._opened: dict[str, Any] = {}
        """Identity of an open run -> its run of W&B."""
        self._last: dict[str, int] = {}
        """Identity of a run -> the last epoch that was shown."""
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)
        self._thread.start()

    def start(self, run: PlannedRun) -> None:
        """Show the start of a run; one that another worker continues is open already."""
        # The tune runs of a point have the same seed.
        name = run_name(run.config) + (f" {run.index}" if run.stage == "tune" else "")
        config = {key: run.config[key] for key in CONFIG if key in run.config}
        config["point"], epoch = run.display_label, run.last_epoch

        def start() -> None:
            if run.id not in self._opened:
                self._opened[run.id] = self._init(id=run.id, name=name, config=config)
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
                self._opened[run.id].log(metrics, step=record["epoch"])
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
            left = self._queue.qsize()
            LOG.warning("W&B: not done after %g s; %d reports are lost", limit, left)

    def _end(self, run_id: str, status: str, losses: dict[str, Any]) -> None:
        if run_id in self._opened:
            opened = self._opened.pop(run_id)
            if losses:
                opened.log(losses, step=self._last[run_id])
            opened.summary["status"] = status
            opened.finish(exit_code=int(status in ("failed", "interrupted")))

    def _work(self) -> None:
        try:
            while report := self._queue.get():
                report()
            for run_id in list(self._opened):
                self._end(run_id, "interrupted", {})
        except Exception as error:
            LOG.warning("W&B is not called again: %s", describe_error(error))


def check_tracker(name: str) -> None:
    """Raise a `UserError` if `--track` names no tracker, or its package is not installed."""
    if name and name != "wandb":
        raise UserError(f"--track {name!r} is unknown; use wandb, or listeners of the study")
    if name and importlib.util.find_spec(name) is None:
        raise UserError(f"--track {name}: {name} is not installed; run: pip install {name}")


def open_tracker(experiment: str, folder: Path) -> Tracker:
    """Return a tracker; a `UserError` says why it cannot be set up, as without an account."""
    try:
        return Tracker(experiment, folder)
    except Exception as error:
        raise UserError(f"--track wandb cannot be set up: {error}") from error
