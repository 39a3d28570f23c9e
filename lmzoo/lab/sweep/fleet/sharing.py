"""How the runs are shared among the workers: the division of `costs.py`, applied one by one.

A worker without runs takes the first pending runs of a shape that has fewer workers than it should
have, up to its share. A worker with runs takes more of their shape, or releases what others have
room for. One worker takes all runs that load the same closed-form estimate
(`lmzoo/train/closed_form.py`).

Workers that are worth their cost and not there yet have a part in the division for `PATIENCE`
seconds, so that the first worker does not take what others will train. Those that have not come by
then are not expected again, in no later stage of the sweep.
"""

import functools
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.sweep.fleet.costs import Cost, Load, Pace, divide
from lmzoo.lab.sweep.fleet.packing import Packer


class ReadyRuns:
    """The runs that can start, by pack key and in order of priority."""

    def __init__(self, pack_key: Callable[[PlannedRun], str]):
        self._pack_key = pack_key
        self._heaps = defaultdict[str, list[tuple[tuple[int, int], int, PlannedRun]]](list)
        """Pack key -> priority, number and run of each."""
        self._samples = dict[str, PlannedRun]()
        self._epochs = dict[str, int]()
        self._count = 0
        self._added = 0

    def __len__(self) -> int:
        return self._count

    def add(self, run: PlannedRun):
        self._added += 1  # orders runs of equal priority, which cannot be compared themselves
        key = self._pack_key(run)
        heapq.heappush(self._heaps[key], (run.priority, self._added, run))
        self._samples.setdefault(key, run)
        left = run.budget - run.trained
        self._epochs[key] = max(self.epochs_left(key), left)
        self._count += 1

    def counts(self) -> Counter[str]:
        counts = Counter[str]()
        for key, heap in self._heaps.items():
            counts[key] = len(heap)
        return counts

    def count(self, key: str) -> int:
        return len(self._heaps.get(key, ()))

    def epochs_left(self, key: str) -> int:
        """Return the most epochs that a run with this key has had left since there were none."""
        return self._epochs.get(key, 0)

    def first_key(self, keys: Collection[str]) -> str:
        """Return the pack key of the first run that has one of these keys; "" if there is none."""

        def order(key: str) -> tuple[tuple[int, int], int]:
            priority, number, _ = self._heaps[key][0]
            return priority, number

        return min(self._heaps.keys() & keys, key=order, default="")

    def sample(self, key: str) -> PlannedRun:
        """Return a run with this key, which need not be ready any more."""
        return self._samples[key]

    def take(self, key: str, count: int) -> list[PlannedRun]:
        """Remove and return the first `count` runs of a pack key, or fewer."""
        heap = self._heaps.get(key, [])
        runs = []
        while heap and len(runs) < count:
            _, _, run = heapq.heappop(heap)
            runs.append(run)
        if runs and not heap:
            del self._heaps[key]
            del self._epochs[key]
        self._count -= len(runs)
        return runs


GAIN = 1.05
"""Runs move to other workers if their epochs are shorter there by more than this ratio."""
SLOW = 1.5
"""A worker that is slower by this ratio leaves its runs to a worker without runs."""
PATIENCE = 30.0
"""Seconds for which runs are kept for workers that the cluster has room for."""
# On a GPU a pack costs hardly more than a run; without a guess all workers would share each shape.
GPU_SLOPE = 1 / 16
"""Assumed b / (a + b) of packs on a GPU until two sizes were measured."""
# 2^0.2 = 1.15: twice the workers must make the sweep at least 13 % shorter.
PRICE = 0.2
"""A number of workers W is worth its cost where seconds · W^PRICE is the least."""


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
    released: dict[str, str] = field(default_factory=dict)
    """Run -> its pack key."""
    key: str = ""
    """Pack key of the runs in training."""
    trained: set[str] = field(default_factory=set)
    """Pack keys of which it has trained an epoch."""
    replied_at: float = 0.0
    epoch_seconds: float = 0.0

    avoid: Collection[str] = ()
    """Pack keys that it leaves to the others: their runs failed on its node."""
    settled: bool = False
    """Whether it has trained an epoch since it took runs the last time."""

    def epochs_left(self) -> int:
        """Return the number of epochs until all its runs have ended."""
        left = [run.budget - run.trained for run in self.training.values()]
        return max(left, default=0)


Workers = Mapping[str, WorkerState]


class Sharing:
    """Decides how many of the ready runs a worker takes, and how many runs it releases."""

    def __init__(self, ready: ReadyRuns, packer: Packer, pace: Pace, memory: int = 0):
        """`memory` is assumed of a worker's GPU until the first one reports it."""
        self.ready = ready
        self.packer = packer
        self.pace = pace
        self._memory = memory
        self.runs = Counter[str]()
        """Pack key -> runs in training."""
        self.released = Counter[str]()
        """Pack key -> runs that a worker must release and has not released yet."""
        # Asked in every division, and long to compute.
        self._limit = functools.cache(self._largest)
        self._division = dict[str, int]()
        """Pack key -> workers that it should have, by the last division."""
        self._workers = list[WorkerState]()
        """Those among whom the runs were divided."""
        self._has_slow = False
        """Whether a worker was slow in the last division."""
        self._expected = 0
        """Workers that are not there yet and have a part in the division."""
        self._expected_since = 0.0
        self._most = math.inf
        """Workers that may be expected: no more than had come when the wait was over."""

    def add(self, worker: WorkerState, run: PlannedRun):
        self.runs[worker.key] += 1
        worker.training[run.id] = run

    def remove(self, worker: WorkerState, run_id: str) -> PlannedRun:
        self.runs[worker.key] -= 1
        return worker.training.pop(run_id)

    def rename(self, worker: WorkerState, key: str):
        """Give the runs of a worker's pack another pack key."""
        self.runs[worker.key] -= len(worker.training)
        self.runs[key] += len(worker.training)
        worker.key = key

    def division(self, workers: Workers, live: int, now: float) -> dict[str, int]:
        """Divide the workers among the pack keys; the cluster has room for `live`."""
        wanted = len(workers)
        if live > wanted:  # one that the sweep does not ask for does not come
            # Workers that are there count, even where fewer would be worth their cost.
            wanted = max(wanted, self.worth(workers, live))
        there = len(workers)
        # An autoscaler that was slow may still bring more.
        self._most = max(self._most, there)
        self._expected = int(min(wanted, self._most)) - there
        if not self._expected:
            self._expected_since = now
        elif now - self._expected_since > PATIENCE:
            self._most = there
            # Nor are they expected later: each stage would wait for them again.
            self._expected = 0
        self._workers = list(workers.values())
        # A worker of half the speed is half a worker: it should not get an equal share.
        speed = sum(1 / self._slowness(worker) for worker in self._workers)
        self._has_slow = speed < there
        count = max(1, round(speed) + self._expected)
        self._division, _ = divide(self._loads(workers), count)
        return self._division

    def worth(self, workers: Workers, limit: int) -> int:
        """Return how many workers, of at most `limit`, are worth their cost."""
        loads = self._loads(workers)
        most = min(limit, sum(load.runs for load in loads))
        if not most:
            return 0
        _, times = divide(loads, most)
        # Twice the workers must save more than a small part of the time.
        prices = [seconds * count**PRICE for count, seconds in enumerate(times, 1)]
        return 1 + prices.index(min(prices))

    def memory(self, workers: Workers) -> int:
        """Return the memory of a GPU of the workers."""
        known = [worker.memory for worker in workers.values()]
        return max(known, default=self._memory)

    def choose(self, worker: WorkerState) -> str:
        """Return the pack key that a worker without runs trains; "" if all have enough workers."""
        on = Counter[str]()
        for own in self._workers:
            if own.training and own.key not in own.avoid:
                on[own.key] += 1
        lacking = {key for key, number in self._division.items() if on[key] < number}
        if not lacking.isdisjoint(worker.avoid):  # it can do nothing there, and others will
            lacking.update(self._division)
        key = self.ready.first_key(lacking.difference(worker.avoid))
        if self._faster(key, worker):
            return ""
        return key

    def room(self, worker: WorkerState) -> int:
        """Return how many more runs of its pack key a worker takes."""
        if worker.key in worker.avoid:
            return 0
        return self._share(worker) - len(worker.training)

    def surplus(self, worker: WorkerState) -> int:
        """Return the number of runs of a worker that others train sooner, and can take."""
        key = worker.key
        own = len(worker.training)
        if not own:
            return 0
        # It would end last; a fast worker without runs ends them sooner.
        if self._faster(key, worker):
            return own
        on = self._on(key)
        share = self._share(worker)
        lacking = self._division[key] - len(on)
        kept = share
        if lacking < 0 and self._slowness(worker) > 1:
            kept = 0  # the others of its shape are faster, and enough
        if own <= kept:
            return 0
        cost = self._cost(key)
        # A run that moves is opened again, so a small gain is not worth it.
        if kept and cost.seconds(own) <= GAIN * cost.seconds(kept):
            return 0
        joining = min(len(self._idle(key)), lacking)
        room = share * max(0, joining)
        for other in on:
            if other is not worker:
                room += max(0, share - len(other.training))
        # These runs have no worker yet, and take that room first.
        room -= self._waiting(key)
        return max(0, min(own - kept, room))

    def _waiting(self, key: str) -> int:
        """Return the runs of a key that have no worker yet."""
        return self.released[key] + self.ready.count(key)

    def _slowness(self, worker: WorkerState) -> float:
        """Return how much slower a worker is than the fastest one; 1 up to the ratio `SLOW`."""
        slowness = self.pace.slowness(worker.node)
        if slowness <= SLOW:
            return 1.0
        return slowness

    def _faster(self, key: str, worker: WorkerState) -> bool:
        """Return whether a much faster worker without runs may train a key."""
        own = self._slowness(worker)
        return any(self._slowness(other) < own for other in self._idle(key))

    def _able(self, key: str) -> list[WorkerState]:
        """Return the workers that may train a key."""
        return [worker for worker in self._workers if key not in worker.avoid]

    def _idle(self, key: str) -> list[WorkerState]:
        """Return the workers without runs that may take some of a key."""
        return [worker for worker in self._able(key) if not worker.training]

    def _on(self, key: str) -> list[WorkerState]:
        """Return the workers that train a key and may take more of it."""
        return [worker for worker in self._able(key) if worker.training and worker.key == key]

    def _share(self, worker: WorkerState) -> int:
        """Return how many runs of its key a worker may have, among those that share them."""
        key = worker.key
        # Workers that avoid the key take nothing: the share of the others is larger.
        able = len(self._able(key)) + self._expected
        wanted = self._division.get(key, 1)
        sharing = max(1, min(wanted, able))
        runs = self.runs[key] + self._waiting(key)
        share = math.ceil(runs / sharing)
        # An idle worker takes over the runs of a slow one; without a slow one, none should be idle.
        if not self._has_slow:
            # Four workers get 2, 1, 1 and 1 of five runs; with 2, 2 and 1 the last has none.
            larger = runs - (share - 1) * sharing
            for other in self._on(key):
                if other is not worker and len(other.training) >= share:
                    larger -= 1
            if larger <= 0:
                share -= 1
        return min(self._limit(key, worker.memory), max(1, share))

    def _largest(self, key: str, memory: int) -> int:
        """Return the largest pack of a key, which takes long to compute."""
        return self.packer.max_members(self.ready.sample(key), memory)

    def _cost(self, key: str) -> Cost:
        unknown = 1.0
        if self._memory:
            unknown = GPU_SLOPE
        cost = self.pace.cost(key, unknown)
        if self.packer.shares_estimate(self.ready.sample(key)):
            # The estimate is made once for all members.
            return Cost(cost.seconds(1), 0.0)
        return cost

    def _loads(self, workers: Workers) -> list[Load]:
        epochs = Counter[str]()
        for worker in workers.values():
            if worker.training:
                left = worker.epochs_left()
                epochs[worker.key] = max(epochs[worker.key], left)
        memory = self.memory(workers)
        loads = []
        counts = self.runs + self.released + self.ready.counts()
        for key, runs in counts.items():
            left = max(1, epochs[key], self.ready.epochs_left(key))
            limit = self._limit(key, memory)
            cost = self._cost(key)
            loads.append(Load(key, runs, left, cost, limit))
        return loads
