"""Hands the agenda's jobs to Tune, packed, and takes in what its trials tell of them."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")

from ray.tune.search import Searcher

from sweeps.engine import handover
from sweeps.engine.console import Console
from sweeps.engine.fused import Packer

if TYPE_CHECKING:
    from sweeps.engine.open_run import Report

MAX_FAILURES = 3
"""How often a trial that died is started again before its run counts as failed."""
WORTH = 2
"""Epochs that a pack must still have before it is worth while to share it."""


@dataclass
class Pack:
    """What a trial was given."""

    config: dict[str, Any]
    going: set[str] = field(init=False)
    """Its runs that have not ended."""
    deaths: int = 0
    heard: bool = False
    """Whether it has told of an epoch."""

    def __post_init__(self) -> None:
        self.going = {handover.run_of(folder) for folder in self.config["folders"]}

    def halve(self) -> "Pack":
        """Keep one half of what goes on; the other."""
        folders = [
            folder for folder in self.config["folders"] if handover.run_of(folder) in self.going
        ]
        half = len(folders) // 2
        other = Pack({**self.config, "folders": folders[:half]}, deaths=self.deaths)
        self.config = {**self.config, "folders": folders[half:]}
        self.going -= other.going
        return other


class Jobs(Searcher):
    """Hands the agenda's jobs to Tune, packed.

    Tune would make of an error in here the failure of a trial, or a traceback. So it is kept,
    and `_Errors` ends the sweep with it.
    """

    def __init__(
        self, packer: Packer, console: Console, places: int, live: Callable[[], int] | None = None
    ) -> None:
        super().__init__(metric="loss", mode="min")
        self.packer, self.agenda, self.console = packer, packer.agenda, console
        self.places = places
        self.live = live or (lambda: places)
        """How many of the places are there now."""
        self.runs: dict[str, Pack] = {}
        self.error: Exception | None = None
        self._lost: list[Pack] = []

    def suggest(self, trial_id: str) -> Any:
        with self._kept():
            return self._suggest(trial_id)
        return Searcher.FINISHED

    def take(self, trial_id: str, reports: "Sequence[Report]") -> bool:
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
        self.runs[trial_id] = Pack(config)
        return config

    def _take(self, trial_id: str, reports: "Sequence[Report]") -> bool:
        if trial_id not in self.runs or self.error:
            return False
        pack = self.runs[trial_id]
        pack.heard, going = True, pack.going
        for run, epoch, loss, ended in reports:
            if run in going and (ended or not self.agenda.report(run, epoch, loss)):
                going.remove(run)
                self.console.end(self.agenda.end(run))
            elif run in going:
                self.console.epoch()
        if going:
            self._share(trial_id, reports)
        return bool(going)

    def _share(self, trial_id: str, reports: "Sequence[Report]") -> None:
        """Give half of a pack to a place that stands idle, as all that is left is running.

        One at a time: until the last one given away has been heard of, nobody knows whether
        there is a place for it.
        """
        pack = self.runs[trial_id]
        ahead = [pack.config["budget"] - e for run, e, *_ in reports if run in pack.going]
        if len(pack.going) < 2 or max(ahead, default=0) < WORTH or self.agenda.ready():
            return
        waiting = self._lost or not all(other.heard for other in self.runs.values())
        if not waiting and len(self.runs) < self.live():
            self._lost.append(pack.halve())
            handover.give_away(trial_id, self._lost[-1].going)

    def _complete(self, trial_id: str, *, error: bool) -> None:
        pack = self.runs.pop(trial_id, None)
        handover.forget(trial_id)
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
