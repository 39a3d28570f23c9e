"""How the runs are shared among the workers.

    share = ⌈runs of a shape, pending or in training / (workers that train it + free workers)⌉

A worker without runs takes the first pending run, and up to `share` runs of its shape. A worker
with runs takes more of their shape, up to `share`. It gives runs away in two cases: another worker
is idle and nothing is pending; or no worker trains a pending shape, and others can take all its
runs. One worker takes all runs that load the same closed-form estimate
(`lmzoo/train/closed_form.py`).
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from lmzoo.study.planned_run import PlannedRun
from lmzoo.sweep.fleet.packing import Packer


class ReadyRuns:
    """The runs that can start, by pack key and in order of priority.

    Each operation takes time that does not grow with their number.
    """

    def __init__(self, pack_key: Callable[[PlannedRun], str]) -> None:
        self._pack_key = pack_key
        self._heaps: dict[str, list[tuple[tuple[int, int], int, PlannedRun]]] = {}
        self._count = 0
        self._added = 0

    def __len__(self) -> int:
        return self._count

    def add(self, run: PlannedRun) -> None:
        """Add a run."""
        self._added += 1  # orders runs of equal priority, which cannot be compared themselves
        heap = self._heaps.setdefault(self._pack_key(run), [])
        heapq.heappush(heap, (run.priority, self._added, run))
        self._count += 1

    def count(self, key: str) -> int:
        """Return the number of runs of a pack key."""
        return len(self._heaps.get(key, ()))

    def first_key(self, besides: Collection[str] = ()) -> str:
        """Return the pack key of the first run that has none of the keys `besides`; "" if none."""
        keys = self._heaps.keys() - besides
        return min(keys, key=lambda key: self._heaps[key][0][:2], default="")

    def first(self, key: str) -> PlannedRun | None:
        """Return the first run of a pack key; None if there is none."""
        return self._heaps[key][0][2] if key in self._heaps else None

    def take(self, key: str, count: int) -> list[PlannedRun]:
        """Remove and return the first `count` runs of a pack key, or fewer."""
        heap = self._heaps.get(key, [])
        runs = [heapq.heappop(heap)[2] for _ in range(min(count, len(heap)))]
        if key in self._heaps and not heap:
            del self._heaps[key]
        self._count -= len(runs)
        return runs


MIN_SECONDS_LEFT = 1.0
"""Runs move to an idle worker only if their pack still needs this many seconds."""


@dataclass
class WorkerState:
    """What the fleet knows of a worker."""

    memory: int = 0
    """Bytes of its GPU; 0 if it uses a CPU."""
    node: str = ""
    training: dict[str, PlannedRun] = field(default_factory=dict)
    leaving: dict[str, PlannedRun] = field(default_factory=dict)
    """Runs that the worker is ending or releasing; they stay its own until it confirms."""
    pruned: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)
    key: str = ""
    """Pack key of the runs in training."""
    trained: set[str] = field(default_factory=set)
    """Pack keys of which it has trained an epoch."""
    next_key: str = ""
    """Pack key to train after all runs are released."""
    replied_at: float = 0.0
    epoch_seconds: float = 0.0

    def seconds_left(self) -> float:
        """Return the expected time until all its runs have ended."""
        left = (run.budget - run.last_epoch for run in self.training.values())
        return self.epoch_seconds * max(left, default=0)


class Sharing:
    """Decides how many of the ready runs a worker takes, and how many runs it releases.

    It counts runs and workers as they change, so that a decision does not visit all workers.
    """

    def __init__(self, ready: ReadyRuns, packer: Packer) -> None:
        self.ready, self.packer = ready, packer
        self.runs: Counter[str] = Counter()
        """Pack key -> runs in training."""
        self.trainers: Counter[str] = Counter()
        """Pack key -> workers that train it."""
        self.released = 0
        """Runs that a worker must release and has not released yet."""

    def add(self, worker: WorkerState, run: PlannedRun) -> None:
        """Add a run to a worker's pack."""
        self.trainers[worker.key] += not worker.training
        self.runs[worker.key] += 1
        worker.training[run.id] = run

    def remove(self, worker: WorkerState, run_id: str) -> PlannedRun:
        """Remove a run from a worker's pack."""
        run = worker.training.pop(run_id)
        self.runs[worker.key] -= 1
        self.trainers[worker.key] -= not worker.training
        return run

    def rename(self, worker: WorkerState, key: str) -> None:
        """Give the runs of a worker's pack another pack key."""
        for counts, amount in ((self.runs, len(worker.training)), (self.trainers, 1)):
            counts[worker.key] -= amount
            counts[key] += amount
        worker.key = key

    def count_to_take(self, worker: WorkerState, live: int, avoid: Collection[str] = ()) -> int:
        """Return how many ready runs of `worker.key` the worker takes; sets the key if it is free.

        `live` is the number of workers, or of those that the cluster has room for. The worker does
        not take runs with the keys in `avoid`.
        """
        if not self.ready:
            return 0
        if not worker.training:
            wanted = "" if worker.next_key in avoid else worker.next_key
            worker.key = wanted if self.ready.first(wanted) else self.ready.first_key(avoid)
        key, first = worker.key, self.ready.first(worker.key)
        if first and self.packer.shares_estimate(first):
            return max(0, self._limit(worker) - len(worker.training))
        free = max(live - self.trainers.total(), 0 if worker.training else 1)
        runs = self.runs[key] + self.ready.count(key)
        share = math.ceil(runs / max(1, self.trainers[key] + free))
        return max(0, min(share, self._limit(worker)) - len(worker.training))

    def count_to_release(
        self, worker: WorkerState, workers: Collection[WorkerState], idle: int
    ) -> int:
        """Return how many runs the worker releases; sets `next_key` if it releases all.

        `idle` is the number of workers that wait for an assignment.
        """
        size = len(worker.training)
        if idle and not self.ready and size > 1 and worker.seconds_left() >= MIN_SECONDS_LEFT:
            fair = max(1, self.runs.total() // len(workers))
            return max(0, min(size - fair, idle * fair - self.released))
        if not size or not self.ready or idle or self.released:
            return 0
        trained = {key for key, count in self.trainers.items() if count}
        worker.next_key = self.ready.first_key(besides=trained)
        if not worker.next_key or self.trainers[worker.key] < 2:
            return 0
        others = [w for w in workers if w is not worker and w.training and w.key == worker.key]
        room = sum(self._limit(w) - len(w.training) for w in others)
        return size if room >= size else 0

    def _limit(self, worker: WorkerState) -> int:
        first = next(iter(worker.training.values()), None) or self.ready.first(worker.key)
        return self.packer.max_members(first, worker.memory) if first else 0
