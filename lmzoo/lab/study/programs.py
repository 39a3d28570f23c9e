"""A run of a program of the user, a function or a command: its reports become records.

    {"epoch": 3, "valid": 1.27, "test": 1.31}   a report: any numbers by name

The study names the metric by which settings are chosen and runs are stopped (`Study.metric`) and
the one by which points are compared (`Study.test_metric`; without it, the last value of the first).
In records, `valid_token` and `token` are losses: metrics of which the highest is the best change
their sign. The reports themselves are kept as `metrics`.

Epochs that are on disk already are skipped, so that a program which begins again, or goes on from
an earlier state, gives each record once. If its state is ahead of the records, it begins again.
"""

import math
import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from lmzoo.base.errors import ProgramError
from lmzoo.lab.store.opened import Files, check_files, inputs
from lmzoo.lab.store.records import FILES, LARGEST, Record, RunFolder, epoch_records
from lmzoo.lab.store.saved_run import SavedRun
from lmzoo.lab.store.writer import Writer
from lmzoo.lab.study.trainable import Config

Report = tuple[Mapping[str, Any], Any]
"""Metrics by name, and the state after them."""


@dataclass
class Progress:
    """How far a program has come."""

    epoch: int = 0
    record: Record = field(default_factory=dict)
    state: Any = None

    @property
    def diverged(self) -> bool:
        """Whether the metric or the test metric of the last epoch was NaN or infinite."""
        return bool(self.record) and self.record["valid_token"] is None


class ProgramRun(SavedRun):
    """A run of a program in its folder."""

    training: Progress
    rarer: ClassVar[str] = "if it counts steps, say how many are an epoch: Command(..., every={:g})"
    """What to do if not every epoch is reported, and if they count from 0."""
    from_zero: ClassVar[str] = "report epoch + 1, or write Command(..., first_epoch=0)"
    loaded: ClassVar[tuple[str, ...]] = ()
    """Ends of names of files that are read once a process, so that a later change is nothing."""

    def __init__(
        self,
        folder: RunFolder,
        config: Config,
        *,
        lock: bool = True,
        new: bool = False,
        writer: Writer | None = None,
    ):
        self.config = config
        self._stream: Iterator[Report] | None = None
        self._resumed = False
        """Whether the program that runs went on from a state."""
        self._new = False
        """Whether it has reported an epoch that was not known before."""
        self._zero = False
        """Whether it has reported an epoch 0."""
        self._read: Files = {}
        """The files that the records name."""
        self.where = Path(config["working_folder"])
        of_model = config["model"].get(FILES, {})
        self._planned = of_model | config.get(FILES, {})
        """Files in its identity, relative to the working folder, and their digests."""
        super().__init__(folder, config, lock=lock, new=new, writer=writer)

    @abstractmethod
    def start(self, budget: int) -> Iterator[Report]:
        """Start the program, from its state if it has one, and yield what it reports."""

    @property
    @abstractmethod
    def has_state(self) -> bool:
        """Whether the program would go on from a state."""

    @abstractmethod
    def forget_state(self):
        """Delete the state, so that the program begins again."""

    @abstractmethod
    def read_files(self) -> Files:
        """Return the files that the program has read, as far as that is known."""

    def check(self, read: Files):
        """Raise a `ProgramError` if what it has read, or else depends on, has changed."""
        check_files(self._planned, read, self.where)

    def train_epoch(self, budget: int):
        """Wait for the next epoch that the program reports.

        A program that ends before the budget has stopped early: its last report counts. A
        RuntimeError says how it failed, or that it reported no metric.
        """
        begun = time.perf_counter()
        if self._stream is None:
            self.check({})
            self._resumed = self.has_state
            self._new = False
            # It goes on from epoch to epoch; the next call reads on.
            self._stream = self.start(budget)
        last = None
        seen = set[str]()
        for metrics, state in self._stream:
            # For the message, if the metric is never among them.
            seen.update(metrics)
            if self._metric not in metrics and "" not in metrics:
                continue
            if metrics.get("epoch") is None:
                # Only the last one counts: it may be printed at each step.
                last = metrics, state
                continue
            epoch = _epoch(metrics["epoch"])
            self._zero |= epoch == 0
            if epoch == self.epoch + 1:
                self._new = True
                return self._add(int(epoch), metrics, state, begun)
            if epoch <= self.epoch:
                continue  # on disk already
            if self._resumed:
                # Its state is ahead of the records, which lost an epoch.
                self._begin_again()
                return self.train_epoch(budget)
            raise RuntimeError(
                f"it reported epoch {epoch:g} after epoch {self.epoch}; "
                + self.rarer.format(epoch - self.epoch)
            )
        self.stop()
        self._add_last(last, seen, begun, budget)

    def _add_last(self, last: Report | None, seen: set[str], begun: float, budget: int):
        """Add what counts of a program that ended early; `last` is a report without an epoch."""
        if last is not None:
            metrics, state = last
            return self._add(budget, metrics, state, begun)
        # Its last epoch would be counted as missing.
        if self._zero and self.epoch in (0, budget - 1):
            raise RuntimeError(f"it counts epochs from 0: {self.from_zero}")
        # It had nothing left to do, but the records lack an epoch.
        if self._resumed and not self._new:
            self._begin_again()
            return self.train_epoch(budget)
        if not self.training.record:
            found = "it reported nothing"
            if seen:
                found = f"it reported {', '.join(sorted(seen))}"
            raise RuntimeError(f"{found}, not {self._metric!r}; name the metric: --metric NAME")
        self._add(budget, self.training.record["metrics"], self.training.state, begun)

    def test(self) -> Record:
        """Append the `test` event: the test metric at the epoch of the best validation metric.

        A program that never reports the test metric is tested by its validation metric, and the
        record says so (`metric`): tables do not compare it with runs that have the test metric. One
        that reports it at other epochs only fails.
        """
        known = [record for record in epoch_records(self.records) if record["epoch"] <= self.epoch]
        # The metric of the test is read at one epoch, chosen without it.
        best = min(known, key=lambda record: record["valid_token"])
        name = self._metric
        if any(self._test_metric in record["metrics"] for record in known):
            name = self._test_metric
        if name not in best["metrics"]:
            raise RuntimeError(
                f"it did not report {name!r} with {self._metric!r} at epoch {best['epoch']}, its "
                f"best: report both at every epoch"
            )
        record = {
            "event": "test",
            "epoch": self.epoch,
            "best_epoch": best["epoch"],
            "token": self._loss(best["metrics"][name]),
            "metric": name,
            "metrics": best["metrics"],
        }
        self._append(record)
        return record

    def prune(self, epoch: int):
        """End the program and delete its state."""
        super().prune(epoch)
        self._begin_again()

    @property
    def _metric(self) -> str:
        return self.config["model"]["metric"]

    @property
    def _test_metric(self) -> str:
        return self.config["model"]["test_metric"]

    def _loss(self, value: float) -> float:
        if self.config["model"]["direction"] == "maximize":
            return -value
        return value

    def _begin_again(self):
        self.stop()
        self.forget_state()

    def _note_files(self, epoch: int):
        """Record which files it has read, unless one has changed, which is an error."""
        read = self.read_files()
        changeable = {name: mark for name, mark in read.items() if not name.endswith(self.loaded)}
        try:
            self.check(changeable)
        except ProgramError:
            # Records of other code must not stay.
            self.start_over()
            raise
        # Most epochs read nothing new.
        if read and read != self._read:
            self._append({"event": FILES, "epoch": epoch, FILES: inputs(read)})
        self._read = read

    def _add(self, epoch: int, metrics: Mapping[str, Any], state: Any, begun: float):
        self._note_files(epoch)
        numbers: dict[str, float] = {}
        for name, value in metrics.items():
            name = name or self._metric
            number = _number(value)
            # A missing test metric may be None: it is not measured at each epoch.
            is_text = number is None and (value is not None or name == self._metric)
            if is_text and name in (self._metric, self._test_metric):
                raise RuntimeError(f"{name} is {str(value)[:60]!r}, not a number; report it as one")
            if number is not None:
                numbers[name] = number
        # It is a field of the record.
        numbers.pop("epoch", None)
        loss = None
        # Both must be finite: a test loss without end is a divergence, too.
        values = [numbers.get(name, 0.0) for name in (self._metric, self._test_metric)]
        if all(abs(value) <= LARGEST for value in values):
            loss = self._loss(numbers[self._metric])
        self.training.epoch = epoch
        self.training.state = state
        self.training.record = {
            "event": "epoch",
            "epoch": epoch,
            "valid_token": loss,
            "metrics": {name: number for name, number in numbers.items() if math.isfinite(number)},
            "seconds": round(time.perf_counter() - begun, 4),
            "host": socket.gethostname(),
        }

    def _new_training(self, config: Config) -> Progress:
        known = epoch_records(self.records)
        if not known:
            return Progress()
        return Progress(known[-1]["epoch"], known[-1])

    def _dump(self, records: list[Record]) -> Callable[[], bytes] | None:
        return None

    def _load(self, data: bytes) -> list[Record]:
        raise ValueError("a program of this kind has no checkpoint")


def _epoch(value: Any) -> float:
    """Return the number of an epoch; a `RuntimeError` if it is none."""
    epoch = _number(value)
    if epoch is None or not epoch >= 0:  # NaN is no number, too
        raise RuntimeError(f"epoch is {value!r:.60}, not a number of 1 or more")
    return epoch


def _number(value: Any) -> float | None:
    # True is 1 for `float`.
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
