"""What the workers and the driver of a sweep send each other. The mailbox passes it on.

The process of the mailbox imports this module, so it imports neither torch nor Ray.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmzoo.lab.store.records import Record

Report = tuple[str, Record]
"""Run identity and epoch record."""


@dataclass(frozen=True)
class Hello:
    """A worker has started, or the mailbox was killed."""

    worker: str
    handle: bytes
    """The worker's actor, pickled."""
    node: str
    """Ray's id."""
    host: str


@dataclass(frozen=True)
class Failed:
    """An error ends a worker."""

    worker: str
    reason: str
    starting: bool = False
    """The worker could not start; it stays without work."""


@dataclass(frozen=True)
class Waiting:
    """The store of a worker fails, and the worker tries again."""

    worker: str
    reason: str
    """Folder, cause and remedy."""


@dataclass(frozen=True)
class Released:
    """A run is closed and has not ended."""

    run: str


@dataclass(frozen=True)
class Ended:
    """The end of a run is written."""

    run: str
    status: str
    reason: str = ""
    test: Record | None = None
    reports: Sequence[Report] = ()
    """Epochs that were not reported before."""


@dataclass(frozen=True)
class Confirmed:
    """A worker has written the ends and releases of runs."""

    worker: str
    runs: Sequence[Ended | Released]


@dataclass(frozen=True)
class Exchange:
    """A worker's report, whose reply is an `Assignment`, or None for a worker without a use."""

    worker: str
    number: int
    """Exchanges are numbered, so that a repeated reply does not answer the next exchange."""
    opened: Sequence[str] = ()
    """Runs that are open or whose end is not confirmed yet."""
    reports: Sequence[Report] = ()
    confirmed: Sequence[Ended | Released] = ()
    memory: int = 0
    """Bytes of the worker's GPU; 0 if it uses a CPU."""


Message = Hello | Failed | Waiting | Confirmed | Exchange


@dataclass(frozen=True)
class Job:
    """What a worker needs to open a run."""

    config: Mapping[str, Any]
    budget: int
    """Epochs."""
    epoch: int
    """The last epoch whose report is known to have arrived."""
    is_new: bool
    """Whether the store has no folder of the run."""


@dataclass(frozen=True)
class Assignment:
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
