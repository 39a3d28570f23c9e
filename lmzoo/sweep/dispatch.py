"""Gives packs of runs to Ray Tune, and passes the reports of its trials to the planner."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")

from ray.tune.search import Searcher

from lmzoo.sweep import reassign
from lmzoo.sweep.console import Console
from lmzoo.sweep.packing import Packer

if TYPE_CHECKING:
    from lmzoo.sweep.worker_run import Report

MAX_FAILURES = 3
"""Restarts of a pack. After one more death its members are tried alone, and a single run fails."""
MIN_SECONDS_LEFT = 10.0
"""A pack is split only if it still needs this many seconds: about the start time of an actor."""
MIN_SECONDS_LEFT_IDLE = 1.0
"""The same if an actor is idle, which starts a pack within about 0.1 s."""


@dataclass
class Pack:
    """The runs of one trial, and what the trial has reported."""

    config: dict[str, Any]
    """The trial's config: `folders` of the runs, `budget` in epochs, and `packed`."""
    unfinished: set[str] = field(init=False)
    """Identities of the runs that have not ended."""
    deaths: int = 0
    has_reported: bool = False
    """Whether the current trial has reported an epoch."""
    last_report: float = 0.0
    """Time of the last report, or of the start of the trial, in seconds."""
    reassigned: "Pack | None" = None
    """The half that was last split off."""

    def __post_init__(self) -> None:
        self.unfinished = {reassign.run_id_of(folder) for folder in self.config["folders"]}

    def seconds_left(self, reports: "Sequence[Report]") -> float:
        """Return the expected time to the end, from the duration of the reported epoch."""
        seconds, self.last_report = time.monotonic() - self.last_report, time.monotonic()
        budget = self.config["budget"]
        epochs_left = [budget - epoch for run, epoch, *_ in reports if run in self.unfinished]
        return seconds * max(epochs_left, default=0)

    def split(self) -> "Pack":
        """Remove half of the unfinished runs; return them as a new pack.

        The deaths of both halves are counted from zero: neither is the pack that died.
        """
        unfinished, folders = self.unfinished, self.config["folders"]
        folders = [folder for folder in folders if reassign.run_id_of(folder) in unfinished]
        half = len(folders) // 2
        self.reassigned = Pack({**self.config, "folders": folders[:half]})
        self.config = {**self.config, "folders": folders[half:]}
        self.unfinished -= self.reassigned.unfinished
        self.deaths = 0
        return self.reassigned


class Dispatcher(Searcher):
    """Gives packs to Ray Tune as suggestions for new trials.

    Ray Tune turns an exception in a searcher into a failed trial or a traceback. The dispatcher
    stores the first exception in `error` instead, and the backend stops the sweep with it.

    At most `max_workers` trials run at a time. `live_workers` returns how many of them the live
    nodes can run; the default is all.
    """

    def __init__(
        self,
        packer: Packer,
        console: Console,
        max_workers: int,
        live_workers: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(metric="loss", mode="min")
        self.packer, self.planner, self.console = packer, packer.planner, console
        self.max_workers = max_workers
        self.live_workers = live_workers or (lambda: max_workers)
        self.packs: dict[str, Pack] = {}
        """Trial id -> its pack, in the order of suggestion."""
        self.error: Exception | None = None
        self._waiting: list[Pack] = []
        """Packs without a trial: their trial has died, or they were split off."""
        self._reported_epochs: dict[str, int] = {}
        """Run identity -> last reported epoch."""
        self._has_idle_actor = False
        """Whether an actor is idle: Ray Tune keeps one whose trial has ended."""
        self._live_when_full = 0
        """Live workers when one of them turned out to be in use by another Ray application."""

    def suggest(self, trial_id: str) -> Any:
        with self._store_error():
            return self._suggest(trial_id)
        return Searcher.FINISHED

    def report(self, trial_id: str, reports: "Sequence[Report]") -> bool:
        """Record a trial's reports; return True if any of its runs continues."""
        with self._store_error():
            return self._report(trial_id, reports)
        return False

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  Ray's own signature
    ) -> None:
        if result and not error:
            self.report(trial_id, result["runs"])
        with self._store_error():
            self._complete(trial_id, error=error)

    def _suggest(self, trial_id: str) -> Any:
        if self.error:
            return Searcher.FINISHED
        pack = self._waiting.pop(0) if self._waiting else self._start_pack()
        if not pack:
            return Searcher.FINISHED if self.planner.done else None
        pack.has_reported, pack.last_report = False, time.monotonic()
        self.packs[trial_id], self._has_idle_actor = pack, False
        return pack.config

    def _start_pack(self) -> Pack | None:
        """Return a pack of ready runs; None if no run is ready."""
        runs = self.packer.start_pack(max(1, self.max_workers - len(self.packs)))
        if not runs:
            return None
        folders = [self.planner.store.run(run.id).store.address for run in runs]
        packed = self.packer.is_packed(runs[0])
        return Pack({"folders": folders, "budget": runs[0].budget, "packed": packed})

    def _report(self, trial_id: str, reports: "Sequence[Report]") -> bool:
        if trial_id not in self.packs or self.error:
            return False
        pack = self.packs[trial_id]
        pack.has_reported, unfinished = True, pack.unfinished
        for run, epoch, loss, ended in reports:
            if run in unfinished and (ended or not self.planner.report(run, epoch, loss)):
                unfinished.remove(run)
                self.console.add_end(self.planner.end(run))
            elif run in unfinished and epoch > self._reported_epochs.get(run, 0):
                # A restarted trial reports the last epoch a second time.
                self._reported_epochs[run] = epoch
                self.console.add_epoch()
        min_seconds = MIN_SECONDS_LEFT_IDLE if self._has_idle_actor else MIN_SECONDS_LEFT
        long_enough = pack.seconds_left(reports) >= min_seconds
        if long_enough and len(unfinished) > 1 and not self.planner.ready():
            self._split(trial_id)
        return bool(unfinished)

    def _split(self, trial_id: str) -> None:
        """Give half of a pack to an idle worker; called when all unfinished runs are running.

        Ray does not report whether a live worker is free: another application may use it. So only
        one half waits at a time. If a half has not started when its trial of origin ends, no pack
        is split again until the cluster has more live workers.
        """
        live = min(self.max_workers, self.live_workers())
        starting = self._waiting or not all(pack.has_reported for pack in self.packs.values())
        if not starting and max(len(self.packs), self._live_when_full) < live:
            self._waiting.append(self.packs[trial_id].split())
            reassign.remove_runs(trial_id, self._waiting[-1].unfinished)

    def _complete(self, trial_id: str, *, error: bool) -> None:
        pack = self.packs.pop(trial_id, None)
        if pack is None or self.error:
            return
        if pack.reassigned:
            reassign.clear(trial_id)
            if not pack.reassigned.has_reported:
                self._live_when_full = min(self.max_workers, self.live_workers())
        self._has_idle_actor = self._has_idle_actor or not error
        pack.deaths += error
        if error and pack.unfinished and pack.deaths <= MAX_FAILURES:
            self._waiting.append(pack)
            return
        for run in sorted(pack.unfinished):
            if len(pack.unfinished) > 1:
                self.packer.requeue_alone(run)
            else:
                failed = f"died {MAX_FAILURES + 1} times" if error else ""
                self.console.add_end(self.planner.end(run, failed=failed))

    @contextlib.contextmanager
    def _store_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the first error is the cause of later ones
            self.error = self.error or error

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the study store holds all state."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the study store holds all state."""
