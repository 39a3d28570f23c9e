"""What the fleet tells a worker, and whom it informs."""

from dataclasses import dataclass
from typing import Any, Protocol

from lmzoo.store.records import Record
from lmzoo.study.planned_run import PlannedRun


class Listener(Protocol):
    """Is informed of what the runs do: the console, the trackers."""

    def start(self, run: PlannedRun) -> None: ...
    def epoch(self, run: PlannedRun, record: Record) -> None: ...
    def end(self, run: PlannedRun, test: Record | None) -> None: ...


@dataclass
class Assignment:
    """The reply to a worker's report."""

    members: list[str]
    """Identities of the runs to train for one epoch, in one pack if `packed`."""
    packed: bool
    join: list[dict[str, Any]]
    """What the worker needs to open each of the members that it does not have open."""
    prune: list[str]
    """Runs that the worker ends as pruned."""
    release: list[str]
    """Runs that the worker closes: another worker continues them, or they wait at a rung."""
