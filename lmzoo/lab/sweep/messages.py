"""What the workers and the driver of a sweep send each other. Imports neither torch nor Ray."""

from collections.abc import Sequence
from typing import NamedTuple

from lmzoo.base.plain import Fields
from lmzoo.lab.store.records import Record

Report = tuple[str, Record]
"""Run identity and epoch record."""


class Released(NamedTuple):
    """A run is closed and has not ended."""

    run: str


class Ended(NamedTuple):
    """The end of a run is written."""

    run: str
    status: str
    reason: str = ""
    test: Record | None = None
    # The report of the last epoch may be lost with its worker; the end carries it again.
    reports: Sequence[Report] = ()
    """Epochs that were not reported before."""


class Started(NamedTuple):
    """The process of a worker has started."""

    node: str
    """Ray's id."""
    host: str


News = Started | Released | Ended | str
"""What a worker says between two exchanges; a text is a warning of its store."""


class Failed(NamedTuple):
    """An error ends a worker, or is why it cannot start."""

    reason: str


class Exchange(NamedTuple):
    """A worker's report, which an `Assignment` follows."""

    worker: str
    opened: Sequence[str] = ()
    """Runs that are open, or whose end is not among the news yet."""
    reports: Sequence[Report] = ()
    memory: int = 0
    """Bytes of the worker's GPU; 0 if it uses a CPU."""
    news: int = 0
    """How many news the worker had when it sent this; they count before it."""


class Job(NamedTuple):
    """What a worker needs to open a run."""

    config: Fields
    budget: int
    """Epochs."""
    epoch: int
    """The last epoch whose report is known to have arrived."""
    is_new: bool
    """Whether the store has no folder of the run."""


class Assignment(NamedTuple):
    """What a worker does until its next exchange."""

    members: Sequence[str] = ()
    """Runs to train for one epoch, in one pack if `packed`."""
    packed: bool = False
    join: Sequence[Job] = ()
    """The members that the worker does not have open."""
    prune: Sequence[str] = ()
    """Runs that the worker ends as pruned."""
    release: Sequence[str] = ()
    """Runs that the worker closes: another worker continues them, or they wait at a rung."""
