"""A run as the planner sees it: its config, its validation curve and its status."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from lmzoo.lab.store.labels import display_label


class Answer(Enum):
    """What the planner answers to the report of an epoch."""

    CONTINUE = auto()
    PRUNE = auto()
    WAIT = auto()
    """The run is closed and waits until it can be compared with others."""


@dataclass(eq=False)
class PlannedRun:
    """A run that is ready, running or ended."""

    id: str
    """Run identity; "" for a setting that the model refuses, which is not trained."""
    label: str
    """Label of the run's point."""
    stage: str
    """tune or confirm."""
    index: int
    """Sample number of a tune run, seed of a confirm run."""
    config: dict[str, Any]
    """Identity config and labels; the worker adds the model's facts when it creates the folder."""
    budget: int
    """Epochs."""
    curve: dict[int, float] = field(default_factory=dict)
    """Epoch -> lowest validation loss up to that epoch, in nats per token."""
    repeats: int = 0
    """The epoch that it has trained again, if it starts over without its checkpoint; else 0."""
    test_loss: float | None = None
    """Test loss of a confirm run that has finished, in nats per token."""
    test_accuracy: float | None = None
    """On a task, the share of answers of the test split that it has right."""
    status: str = ""
    """finished, pruned, diverged, failed or refused; "" while the run has not ended."""
    reason: str = ""
    """Why the run failed or was refused."""
    failures: list[str] = field(default_factory=list)
    """Why it failed in earlier sweeps and in this one, once for each machine up to two."""
    nodes: list[str] = field(default_factory=list)
    """The machines on which it failed in this sweep."""
    priority: tuple[int, int] = (0, 0)
    """Runs of its point that were planned before it, position of its point; the lowest is first.

    So ready runs that start in order of priority alternate between the points.
    """
    read: Mapping[str, str] = field(default_factory=dict)
    """The files that the program has read, and their digests, as far as it has said."""
    is_new: bool = False
    """True until the first start if the store had no folder of this run when it was opened."""

    def add_failure(self, reason: str, nodes: Sequence[str]):
        """Add the failure of a sweep in which it failed on these machines."""
        self.failures.append(reason)
        if len(nodes) > 1:  # as good as two sweeps
            self.failures.append(reason)

    def add_epoch(self, epoch: int, loss: float | None):
        """Add an epoch to the curve; an epoch without a loss (None) has diverged and is skipped."""
        if loss is None:
            return
        earlier = epoch - 1
        # Epochs that diverged are not on the curve.
        while earlier > 0 and earlier not in self.curve:
            earlier -= 1
        self.curve[epoch] = min(loss, self.curve.get(earlier, math.inf))

    @property
    def ended(self) -> bool:
        """Whether it has a result: a failure that has not repeated is missing, not bad.

        Two equal ones are those of two sweeps, or of two machines in one sweep
        (`lab/sweep/fleet/health.py`). A single one may be due to the machine: a broken node, a full
        disk, a lost worker.
        """
        # Other ends are results.
        if self.status != "failed":
            return bool(self.status)
        if len(self.failures) < 2:
            return False
        return self.failures[-2] == self.failures[-1]

    @property
    def display_label(self) -> str:
        """Label of the run's point with the names of its cuts; see `lmzoo/lab/store/labels.py`."""
        return display_label(self.label, self.config.get("model", {}).get("cell"))

    @property
    def last_epoch(self) -> int:
        """The last epoch on the curve; 0 if there is none."""
        return max(self.curve, default=0)

    @property
    def trained(self) -> int:
        """The epoch up to which it is trained; below `last_epoch` while it starts over."""
        if self.repeats:
            return self.repeats
        return self.last_epoch

    @property
    def best_loss(self) -> float | None:
        """The lowest validation loss; None before the first epoch."""
        return min(self.curve.values(), default=None)
