"""Hands the agenda's jobs to Tune, packed, and takes in what its trials tell of them."""

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

from lmzoo.sweep import reassign as handover
from lmzoo.sweep.console import Console
from lmzoo.sweep.packing import Packer

if TYPE_CHECKING:
    from lmzoo.sweep.worker_run import Report

MAX_FAILURES = 3
"""How often a trial that died is started again before its run counts as failed."""
WORTH = 10.0
"""Seconds that a pack must still have to go to be shared: about what an actor's start takes."""
WORTH_AT_ONCE = 1.0
"""The same where an actor stands idle: its next runs begin within a tenth of a second."""


@dataclass
class Pack:
    """What a trial was given, or is to be given."""

    config: dict[str, Any]
    going: set[str] = field(init=False)
    """Its runs that have not ended."""
    deaths: int = 0
    heard: bool = False
    """Whether its trial has told of an epoch."""
    told: float = 0.0
    """When it last did, or was given out."""
    given: "Pack | None" = None
    """The half that was last taken from it."""

    def __post_init__(self) -> None:
        self.going = {handover.run_of(folder) for folder in self.config["folders"]}

    def left(self, reports: "Sequence[Report]") -> float:
        """Seconds that it still has to go, if an epoch takes as long as the one just told of."""
        epoch, self.told = time.monotonic() - self.told, time.monotonic()
        ahead = [self.config["budget"] - e for run, e, *_ in reports if run in self.going]
        return epoch * max(ahead, default=0)

    def halve(self) -> "Pack":
        """Keep one half of what goes on; the other. Deaths count anew: neither is what died."""
        folders = [f for f in self.config["folders"] if handover.run_of(f) in self.going]
        half = len(folders) // 2
        self.given = Pack({**self.config, "folders": folders[:half]})
        self.config = {**self.config, "folders": folders[half:]}
        self.going -= self.given.going
        self.deaths = 0
        return self.given


class Dispatcher(Searcher):
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
        self._waiting: list[Pack] = []
        """Packs without a trial: theirs has died, or they are halves given away."""
        self._epochs: dict[str, int] = {}
        """What was told of each run."""
        self._spare = False
        """Whether an actor stands idle: of those that have ended their runs, Tune keeps one."""
        self._taken = 0
        """Places that were live when one of them proved to be somebody else's."""

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
        pack = self._waiting.pop(0) if self._waiting else self._packed()
        if not pack:
            return Searcher.FINISHED if self.agenda.done else None
        pack.heard, pack.told = False, time.monotonic()
        self.runs[trial_id], self._spare = pack, False
        return pack.config

    def _packed(self) -> Pack | None:
        """What is ready; None while all that is left waits for what runs."""
        jobs = self.packer.next(idle=max(1, self.places - len(self.runs)))
        if not jobs:
            return None
        folders = [self.agenda.store.run(job.run).store.address for job in jobs]
        fused = self.packer.fused(jobs[0])
        return Pack({"folders": folders, "budget": jobs[0].budget, "fused": fused})

    def _take(self, trial_id: str, reports: "Sequence[Report]") -> bool:
        if trial_id not in self.runs or self.error:
            return False
        pack = self.runs[trial_id]
        pack.heard, going = True, pack.going
        for run, epoch, loss, ended in reports:
            if run in going and (ended or not self.agenda.report(run, epoch, loss)):
                going.remove(run)
                self.console.end(self.agenda.end(run))
            elif run in going and epoch > self._epochs.get(run, 0):
                self._epochs[run] = epoch  # who takes a run over tells its last one again
                self.console.epoch()
        worth = WORTH_AT_ONCE if self._spare else WORTH
        if pack.left(reports) >= worth and len(going) > 1 and not self.agenda.ready():
            self._share(trial_id)
        return bool(going)

    def _share(self, giver: str) -> None:
        """Give half of a pack to a place that stands idle, as all that is left is running.

        Whether a place that counts as live is free, Ray does not say: others may work on its
        cluster. So it is one half at a time, and none any more once one was not begun
        before its giver ended, until another machine is there.
        """
        live = min(self.places, self.live())
        unbegun = self._waiting or not all(pack.heard for pack in self.runs.values())
        if not unbegun and max(len(self.runs), self._taken) < live:
            self._waiting.append(self.runs[giver].halve())
            handover.reassign(giver, self._waiting[-1].going)

    def _complete(self, trial_id: str, *, error: bool) -> None:
        pack = self.runs.pop(trial_id, None)
        if pack is None or self.error:
            return
        if pack.given:
            handover.forget(trial_id)
            if not pack.given.heard:
                self._taken = min(self.places, self.live())
        self._spare = self._spare or not error
        pack.deaths += error
        if error and pack.going and pack.deaths <= MAX_FAILURES:
            self._waiting.append(pack)
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
