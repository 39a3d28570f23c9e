"""How the runs are shared among the workers: the placement, applied to the workers one by one.

A worker without runs takes the first pending runs of its share. A worker with runs takes more of
their shape, or releases some if others are faster with them. One worker takes all runs that load
the same closed-form estimate (`lmzoo/train/closed_form.py`).

Shapes of which every worker trains one run at a time, such as functions, are one shape to the
placement: it decides how many of them a worker gets, and the priority decides which.

A placement is used until a part of the runs has changed, and computed again when workers come or
go, or one has nothing to do. Room for workers that are not there yet is
part of it for `PATIENCE` seconds, so that the first worker does not take what others will train.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.sweep.fleet.costs import Cost, Load, Pace, Placement, Share, Slot, place
from lmzoo.lab.sweep.fleet.packing import Packer


class ReadyRuns:
    """The runs that can start, by pack key and in order of priority."""

    def __init__(self, pack_key: Callable[[PlannedRun], str]) -> None:
        self._pack_key = pack_key
        self._heaps: dict[str, list[tuple[tuple[int, int], int, PlannedRun]]] = {}
        self._samples: dict[str, PlannedRun] = {}
        self._epochs: dict[str, int] = {}
        self._count = 0
        self._added = 0

    def __len__(self) -> int:
        return self._count

    def add(self, run: PlannedRun) -> None:
        self._added += 1  # orders runs of equal priority, which cannot be compared themselves
        key = self._pack_key(run)
        heapq.heappush(self._heaps.setdefault(key, []), (run.priority, self._added, run))
        self._samples.setdefault(key, run)
        self._epochs[key] = max(self._epochs.get(key, 0), run.budget - run.trained)
        self._count += 1

    def counts(self) -> Counter[str]:
        return Counter({key: len(heap) for key, heap in self._heaps.items()})

    def count(self, key: str) -> int:
        return len(self._heaps.get(key, ()))

    def epochs_left(self, key: str) -> int:
        """Return the most epochs that a run with this key has had left since there were none."""
        return self._epochs.get(key, 0)

    def first_key(self, keys: Collection[str]) -> str:
        """Return the pack key of the first run that has one of these keys; "" if there is none."""
        found = self._heaps.keys() & keys
        return min(found, key=lambda key: self._heaps[key][0][:2], default="")

    def sample(self, key: str) -> PlannedRun:
        """Return a run with this key, which need not be ready any more."""
        return self._samples[key]

    def take(self, key: str, count: int) -> list[PlannedRun]:
        """Remove and return the first `count` runs of a pack key, or fewer."""
        heap = self._heaps.get(key, [])
        runs = [heapq.heappop(heap)[2] for _ in range(min(count, len(heap)))]
        if key in self._heaps and not heap:
            del self._heaps[key], self._epochs[key]
        self._count -= len(runs)
        return runs


SHAPES = 10
"""A placement of n shapes is used for the next n // SHAPES changes of the runs."""
RUNS = 16
"""A placement of n runs is used for the next n // RUNS changes, if these are more."""
ALONE = "alone"
"""Key of the load of all runs that train alone."""
NEARLY = 1.2
"""Ratio up to which numbers of runs and workers count as equal: `worth` takes long."""
PATIENCE = 30.0
"""Seconds for which runs are kept for workers that the cluster has room for."""
GPU_SLOPE = 1 / 16
"""Assumed b / (a + b) of packs on a GPU until two sizes were measured."""
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
        return max((run.budget - run.trained for run in self.training.values()), default=0)


class Sharing:
    """Decides how many of the ready runs a worker takes, and how many runs it releases."""

    def __init__(self, ready: ReadyRuns, packer: Packer, pace: Pace, memory: int = 0) -> None:
        """`memory` is assumed of a worker's GPU until the first one reports it."""
        self.ready, self.packer, self.pace, self._memory = ready, packer, pace, memory
        self.runs: Counter[str] = Counter()
        """Pack key -> runs in training."""
        self.released: Counter[str] = Counter()
        """Pack key -> runs that a worker must release and has not released yet."""
        self.version = 0
        """It grows when workers have come or gone."""
        self.changes = 0
        """It grows when runs have come or gone."""
        self._plan = dict[str, dict[str, Share]]()
        self._planned_for: tuple[object, object] = (None, None)
        self._uses_left = 0
        """Changes of the runs for which the plan may still be used."""
        self._wanted = 0
        self._wanted_for: tuple[float, ...] = ()
        """Numbers for which `_wanted` was computed."""
        self._expected_since = 0.0

    def add(self, worker: WorkerState, run: PlannedRun) -> None:
        self.runs[worker.key] += 1
        worker.training[run.id] = run

    def remove(self, worker: WorkerState, run_id: str) -> PlannedRun:
        self.changes += 1
        self.runs[worker.key] -= 1
        return worker.training.pop(run_id)

    def rename(self, worker: WorkerState, key: str) -> None:
        """Give the runs of a worker's pack another pack key."""
        self.version += 1
        self.runs[worker.key] -= len(worker.training)
        self.runs[key] += len(worker.training)
        worker.key = key

    def shares(
        self, workers: Mapping[str, WorkerState], live: int, now: float, name: str
    ) -> dict[str, dict[str, Share]]:
        """Return the share of each worker; `name` asks, and the cluster has room for `live`."""
        expected = max(0, live - len(workers))
        if not expected:
            self._expected_since = now
        elif now - self._expected_since > PATIENCE:
            expected = 0
        state = (self.version, expected), (self.changes, self.pace.version, len(self.ready))
        if self._planned_for == state:
            return self._plan
        self._uses_left -= 1
        fits = self._planned_for[0] == state[0] and self._plan.keys() == workers.keys()
        if not (fits and self._uses_left >= 0 and self._serves(workers[name], name)):
            slots = [*map(self._slot, workers.values())]
            slots += [Slot(memory=self.memory(workers))] * expected
            shares = self._place(workers, slots).shares
            self._plan = dict(zip(workers, shares, strict=False))
            counts = self._counts()
            self._uses_left = max(len(counts) // SHAPES, counts.total() // RUNS)
            self._planned_for = state
        return self._plan

    def worth(self, workers: Mapping[str, WorkerState], limit: int) -> int:
        """Return how many workers, of at most `limit`, are worth their cost."""
        counts = self._counts()
        runs = counts.total()
        if not runs or not limit:
            return 0
        numbers = (limit, runs, len(counts), len(workers), self.pace.version)
        if not _nearly(numbers, self._wanted_for):
            slots = sorted(map(self._slot, workers.values()), key=lambda own: own.slowness)[:limit]
            slots += [Slot(memory=self.memory(workers))] * (min(limit, runs) - len(slots))

            def price(count: int) -> float:
                return self._place(workers, slots[:count]).seconds * count**PRICE

            self._wanted = min(_numbers(len(slots)), key=price)
            self._wanted_for = numbers
        return min(self._wanted, limit)

    def memory(self, workers: Mapping[str, WorkerState]) -> int:
        """Return the memory of a GPU of the workers."""
        return max((worker.memory for worker in workers.values()), default=self._memory)

    def limit(self, key: str, memory: int) -> int:
        """Return the maximum number of runs of a key that a worker trains together."""
        return self.packer.max_members(self.ready.sample(key), memory)

    def _serves(self, worker: WorkerState, name: str) -> bool:
        """Return whether a worker has something to do by its share of an earlier placement."""
        share = self._plan.get(name, {})
        if worker.training:
            return worker.key in share
        return any(own.runs and self.ready.count(key) for key, own in share.items())

    def _counts(self) -> Counter[str]:
        """Return the runs of each pack key that are ready, in training or released."""
        return self.runs + self.released + self.ready.counts()

    def _place(self, workers: Mapping[str, WorkerState], slots: list[Slot]) -> Placement:
        """Place the runs; those that train alone are one load, of which a slot may have any."""
        avoided = {key for worker in workers.values() for key in worker.avoid}
        packed: list[Load] = []
        alone: list[Load] = []
        for load in self._loads(workers, slots):
            is_alone = max(load.limit.values()) == 1 and load.key not in avoided
            (alone if is_alone else packed).append(load)
        if len(alone) < 2:
            return place([*packed, *alone], slots)
        keys = dict.fromkeys(load.key for load in alone)
        runs = sum(load.runs for load in alone)
        seconds = sum(load.runs * load.epochs * load.cost.seconds(1) for load in alone)
        together = Load(ALONE, runs, 1, Cost(seconds / runs, 0.0), alone[0].limit)
        slots = [replace(slot, key=ALONE) if slot.key in keys else slot for slot in slots]
        placement = place([*packed, together], slots)
        for share in placement.shares:
            if ALONE in share:
                share |= dict.fromkeys(keys, share.pop(ALONE))
        return placement

    def _loads(self, workers: Mapping[str, WorkerState], slots: list[Slot]) -> Iterator[Load]:
        epochs: dict[str, int] = {}
        for worker in workers.values():
            if worker.training:
                epochs[worker.key] = max(epochs.get(worker.key, 1), worker.epochs_left())
        memories = {slot.memory for slot in slots}
        for key, runs in self._counts().items():
            first = self.ready.sample(key)
            limits = {memory: self.packer.max_members(first, memory) for memory in memories}
            cost = self.pace.cost(key, GPU_SLOPE if self._memory else 1.0)
            left = max(epochs.get(key, 1), self.ready.epochs_left(key))
            if self.packer.shares_estimate(first):
                left, cost = 1, Cost(cost.seconds(1), 0.0)
            yield Load(key, runs, left, cost, limits)

    def _slot(self, worker: WorkerState) -> Slot:
        key = worker.key if worker.training else ""
        slowness = self.pace.slowness(worker.node)
        return Slot(slowness, worker.memory, key, len(worker.training), worker.avoid)


def _nearly(numbers: tuple[float, ...], others: tuple[float, ...]) -> bool:
    """Return whether no number has changed by more than the ratio `NEARLY`."""
    if len(numbers) != len(others):
        return False
    pairs = zip(numbers, others, strict=True)
    return all(1 + max(pair) <= NEARLY * (1 + min(pair)) for pair in pairs)


def _numbers(most: int) -> Iterator[int]:
    """Yield numbers of workers up to `most`, each about 1.2 times the one before."""
    count = 1
    while count < most:
        yield count
        count = max(count + 1, round(1.2 * count))
    yield most
