"""What an epoch of a pack costs, and who trains what.

    c(n) = s (a + b n)      seconds of an epoch of a pack of n runs

a and b belong to the shape, the slowness s to the worker. If packs of one size only were seen, c is
between constant and proportional to n. The first epoch of a shape on a worker includes compilation,
up to `COMPILATION` seconds; it is used only until another epoch has ended. A worker's slowness is
learnt from epochs of shapes that other workers have trained too. Of a shape that it alone has
trained, half of the difference (in logarithms) from the other shapes counts as the worker's, and
half as the shape's, until another worker trains it.

**The placement.** A worker that trains a shape for e epochs until a deadline T finishes

    q L + n,   q = ⌊t / (a + b L)⌋,   n = ⌊(t − q (a + b L) − a) / b⌋,   t = T / (e s)

runs of it: q full packs of L runs and one of n. The placement is that of the least T, found by
bisection, at which all runs are placed. Shapes that few workers may train are placed first, then
those with the most work. A shape goes to the workers that train it, whose time is reserved for it,
then to free ones, those first that can finish the most. So where a pack costs no more than a run, a
shape stays together; where it costs as much as its runs, the shape is divided by the speed of the
workers. With one shape, another worker never makes the runs end later; with up to three, 82 of
54,566 random cases ended later.

Nothing here knows Ray or a clock.
"""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lmzoo.lab.study.planner import Planner

STAY = 1.05
"""A worker keeps runs that it finishes at most so many times later than the deadline."""
PRECISION = 1.02
"""Relative precision of the deadline."""


class Cost(NamedTuple):
    """Seconds of an epoch of a pack of n runs, on a worker of usual speed: fixed + each · n."""

    fixed: float
    each: float

    def seconds(self, members: float) -> float:
        return self.fixed + self.each * members


class Load(NamedTuple):
    """The runs of one shape, in training or pending."""

    key: str
    runs: int
    epochs: float
    """The most epochs that one of them has left."""
    cost: Cost
    limit: Mapping[int, int]
    """Memory of a worker -> the largest pack."""


@dataclass(frozen=True)
class Slot:
    """A worker, or the room for one."""

    slowness: float = 1.0
    """Seconds of its epochs, relative to the usual worker."""
    memory: int = 0
    key: str = ""
    """What it trains."""
    runs: int = 0
    """How many runs of it."""
    avoid: Collection[str] = field(default=())
    """Keys of which it gets no more while another worker can; it may keep what it trains."""


class Share(NamedTuple):
    """What a slot trains of a shape until the deadline, in several packs perhaps."""

    runs: int
    keeps: int
    """How many of its runs it need not give away."""


class Placement(NamedTuple):
    """Who trains what."""

    seconds: float
    """Until all runs have ended."""
    shares: list[dict[str, Share]]
    """Of each slot: key -> its share."""


def place(loads: Sequence[Load], slots: Sequence[Slot]) -> Placement:
    """Return the placement of all runs with the least deadline."""

    def order(load: Load) -> tuple[int, float]:
        avoided = sum(load.key in slot.avoid for slot in slots)
        return -avoided, -load.runs * load.epochs * load.cost.seconds(1)

    loads = sorted(loads, key=order)
    if not slots or not loads:
        return Placement(0.0, [{} for _ in slots])
    table = _Table(loads, slots)
    alone = sum(x.runs * x.epochs * x.cost.seconds(1) for x in loads)
    high = float(2 * alone * table.slowness.max()) + 1e-9  # one slot can do everything
    low = max(x.epochs * x.cost.seconds(1) for x in loads) * float(table.slowness.min()) / STAY
    best = table.fill(high)
    assert best is not None
    while high > low * PRECISION:
        middle = (low * high) ** 0.5
        found = table.fill(middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    shares = [dict[str, Share]() for _ in slots]
    for load, (counts, keeps) in zip(loads, best, strict=True):
        for slot in np.flatnonzero(counts + keeps):
            shares[slot][load.key] = Share(int(counts[slot]), int(keeps[slot]))
    return Placement(high, shares)


class _Table:
    """The numbers of the slots, and one row for each load."""

    def __init__(self, loads: Sequence[Load], slots: Sequence[Slot]) -> None:
        self.slowness = np.array([slot.slowness for slot in slots])
        self._trains = np.array([slot.runs > 0 for slot in slots])
        self._loads = loads
        self._limit = np.array([[load.limit[s.memory] for s in slots] for load in loads], float)
        self._held = np.zeros(self._limit.shape)
        self._may = np.ones(self._limit.shape, bool)
        rows = {load.key: i for i, load in enumerate(loads)}
        for j, slot in enumerate(slots):
            if slot.key in rows:
                self._held[rows[slot.key], j] = slot.runs
            for key in slot.avoid:
                if key in rows:
                    self._may[rows[key], j] = False
        self._may[~self._may.any(1)] = True
        self._per_epoch = np.array([[load.epochs] for load in loads]) * self.slowness
        self._cost = Cost(*np.array([load.cost for load in loads], float).T[:, :, None])

    def fill(self, deadline: float) -> list[tuple[np.ndarray, np.ndarray]] | None:
        """Return (runs, runs that it may keep) of each slot for each load; None if some remain."""
        left = np.full(len(self.slowness), deadline)
        most = _runs_in(STAY * deadline / self._per_epoch, self._cost, self._limit)
        kept = np.minimum(self._held, most)
        seconds = self._per_epoch * _seconds_of(kept, self._cost, self._limit)
        reserved = seconds.sum(0)  # for what a slot keeps of its own shape
        filled = []
        for i, load in enumerate(self._loads):
            per_epoch, limit, keeps = self._per_epoch[i], self._limit[i], kept[i]
            reserved[self._held[i] > 0] = 0.0
            free = np.maximum(left - reserved, 0.0)
            room = np.where(self._may[i], _runs_in(free / per_epoch, load.cost, limit), 0.0)
            room = np.maximum(room, keeps)
            if room.sum() < load.runs:
                return None
            order = np.lexsort((-room, self._trains, -self._held[i]))
            ordered = room[order]
            before = ordered.cumsum() - ordered
            counts = np.empty_like(room)
            counts[order] = np.minimum(np.maximum(load.runs - before, 0.0), ordered)
            counts = _evened(counts, room)
            left = np.maximum(left - per_epoch * _seconds_of(counts, load.cost, limit), 0.0)
            filled.append((counts, np.maximum(counts, keeps)))
        return filled


def _evened(counts: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Divide the runs among the slots that have some, in proportion to their room."""
    some = counts > 0
    if np.count_nonzero(some) == 1:
        return counts
    room = np.where(some, room, 0.0)
    exact = room * (counts.sum() / room.sum())
    whole = np.floor(exact + 1e-9)
    missing = round(counts.sum() - whole.sum())
    if missing:
        whole[np.argsort(whole - exact, kind="stable")[:missing]] += 1
    return whole


def _runs_in(seconds: np.ndarray, cost: Cost, limit: np.ndarray) -> np.ndarray:
    """Return how many runs end in this time, if each has one epoch left."""
    seconds = seconds * (1 + 1e-9)
    full = cost.fixed + cost.each * limit
    packs = np.floor(seconds / full)
    rest = seconds - packs * full - cost.fixed
    free = cost.each <= 1e-9 * cost.fixed  # as many as there may be, if a run costs nothing
    part = np.where(free, limit, np.floor(rest / np.where(free, 1.0, cost.each)))
    return packs * limit + np.where(rest >= 0, np.minimum(part, limit), 0.0)


def _seconds_of(runs: np.ndarray, cost: Cost, limit: np.ndarray) -> np.ndarray:
    """Return the seconds in which so many runs end, if each has one epoch left."""
    packs = np.floor(runs / limit)
    rest = runs - packs * limit
    return packs * (cost.fixed + cost.each * limit) + (rest > 0) * (cost.fixed + cost.each * rest)


FORGET = 0.95
"""Weight of an observation, relative to the next one of its shape."""
COMPILATION, LEAST = 20.0, 0.05
"""Seconds of a worker's first epoch that may be compilation, and the least share that is not."""
LEARN = 0.5
"""Weight of the last epoch in a worker's slowness."""
SPREAD = 0.1
"""Relative standard deviation of the sizes of packs from which the slope is known."""
CHANGED = 1.1
"""Ratio by which a number changes before it counts as another one."""

Sums = tuple[float, ...]


class Pace:
    """What epochs have taken, by shape: a + b n, by weighted least squares.

    The weights are c^(-½): an epoch that took long for other reasons counts less.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Sums] = {}
        """Shape -> number of observations, weighted sums of 1, n, n², c, n c."""
        self._first: dict[str, Sums] = {}
        """The same for the first epochs of workers."""
        self._slopes: dict[str, float] = {}
        """Shape -> b / (a + b), as it was last known."""
        self._by: dict[str, set[str]] = {}
        """Shape -> its workers."""
        self._slowness: dict[str, float] = {}
        self._usual = 1.0
        """Slowness of a worker of which nothing is known: the median."""
        self._seen: dict[str, float] = {}
        """Numbers at the last version."""
        self.version = 0
        """It grows when the cost of a shape or the slowness of a worker has changed."""

    def add(
        self, shape: str, members: int, seconds: float, *, first: bool = False, worker: str = ""
    ) -> None:
        """Add an epoch of a pack that took this long; `first` of the shape on its worker."""
        seconds = max(seconds, 1e-6)
        kind = self._first if first else self._sums
        if worker:
            self._by.setdefault(shape, set()).add(worker)
            self._learn(worker, shape, members, seconds, kind)
        n, c = members, seconds / self.slowness(worker)
        old, w = kind.get(shape, (0.0,) * 6), c**-0.5
        new = (1, w, w * n, w * n * n, w * c, w * n * c)
        kind[shape] = own = tuple(FORGET * x + y for x, y in zip(old, new, strict=True))
        if (slope := _slope(own)) is not None:
            self._slopes[shape] = slope
        self._note(shape, self.cost(shape, 1.0).seconds(members))

    @property
    def known(self) -> bool:
        return bool(self._sums or self._first)

    def slowness(self, worker: str) -> float:
        """Return the seconds of a worker's epochs, relative to the usual worker's."""
        return self._slowness.get(worker, self._usual)

    def cost(self, shape: str, unknown: float) -> Cost:
        """Return a and b of a shape; `unknown` is b / (a + b) if no two sizes were measured."""
        return self._cost(shape, self._observed(shape), unknown)

    def expected(self, shape: str, members: int, *, first: bool) -> tuple[float, float]:
        """Return the most seconds of an epoch on a usual worker, and of its compilation.

        If it is the `first` of the shape on its worker, it is as long as other first epochs.
        """
        own = self._first.get(shape) if first else None
        firsts = [own] if own else [*self._first.values()] if first else []
        _, most = self._bounds(shape, firsts or self._observed(shape), members)
        return most, COMPILATION * (first and not own)

    def _observed(self, shape: str) -> list[Sums]:
        own = self._sums.get(shape) or self._first.get(shape)
        return [own] if own else [*(self._sums or self._first).values()]

    def _cost(self, shape: str, observed: Sequence[Sums], unknown: float) -> Cost:
        slope = self._slopes.get(shape)
        if slope is None:
            known = self._slopes.values()
            slope = sum(known) / len(known) if known else unknown
        means = [(sums[4] / sums[1], sums[2] / sums[1]) for sums in observed]  # of c and of n
        alone = sum(c / (1 + slope * (n - 1)) for c, n in means) / len(means) if means else 1.0
        return Cost(alone * (1 - slope), alone * slope)

    def _bounds(self, shape: str, observed: Sequence[Sums], members: int) -> tuple[float, float]:
        """Return c(n): between constant and proportional while the slope is not known."""
        ends = [self._cost(shape, observed, unknown).seconds(members) for unknown in (0.0, 1.0)]
        return min(ends), max(ends)

    def _learn(
        self, worker: str, shape: str, members: int, seconds: float, kind: Mapping[str, Sums]
    ) -> None:
        """Compare an epoch with those of other workers."""
        others = [sums for other, sums in kind.items() if other != shape]
        share = 1.0
        if len(self._by[shape]) > 1 and shape in kind:
            low, high = self._bounds(shape, [kind[shape]], members)
        elif len(self._by[shape]) == 1 and others:
            (low, high), share = self._bounds(shape, others, members), 0.5
        else:
            self._slowness.setdefault(worker, self._usual)
            return
        likely = min(max(seconds, low), high)  # of a usual worker
        found = share * math.log(seconds / likely)
        known = self._slowness.get(worker)
        before = math.log(known) if known else found
        self._slowness[worker] = math.exp(before + LEARN * (found - before))
        self._usual = statistics.median(self._slowness.values())
        self._note(worker, self._slowness[worker])

    def _note(self, name: str, value: float) -> None:
        before = self._seen.get(name)
        if before is None or not before / CHANGED <= value <= before * CHANGED:
            self._seen[name] = value
            self.version += 1


def _slope(sums: Sums) -> float | None:
    """Return b / (a + b), neither negative; None if packs of about one size were seen."""
    _, w, n, nn, c, nc = sums
    size, seconds = n / w, c / w
    spread = nn / w - size**2
    if spread < (SPREAD * size) ** 2:
        return None
    each = min(max((nc / w - size * seconds) / spread, 0.0), seconds / size)
    return min(1.0, each / (seconds + each * (1 - size)))


PRUNED = 0.85
"""Share of its epochs that a tune run trains in the mean where a pruner may stop it."""


def epochs_left(planner: Planner) -> float:
    """Return the epochs that the runs of a study will train; a run of two points counts once."""
    seen: set[str] = set()
    epochs = 0.0
    for point in planner.points:
        pruned = 1.0
        if point.study.pruner != "none":
            pruned = PRUNED
        budget = 1 if point.point.closed_form else point.study.epochs
        for run in (*point.tune_runs, *point.confirm_runs):
            if run.status or run.id in seen:
                continue
            seen.add(run.id)
            share = 1.0
            if run.stage == "tune":
                share = pruned
            epochs += share * max(0, budget - run.trained)
        epochs += pruned * budget * max(0, point.samples - len(point.tune_runs))
        if point.best_setting is None:
            epochs += budget * point.seeds
    return epochs


def epochs_done(planner: Planner) -> int:
    """Return the epochs that the runs have trained; a run of two points counts once."""
    epochs: dict[str, int] = {}
    for point in planner.points:
        for run in (*point.tune_runs, *point.confirm_runs):
            epochs[run.id] = min(run.trained, 1) if point.point.closed_form else run.trained
    return sum(epochs.values())
