"""What an epoch of a pack costs, who trains what, and how long a sweep still takes: one model.

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
workers; and a worker that is too slow for the deadline gets nothing. With one shape, another worker
never makes the runs end later. With several, shapes are placed one after another: of 54,566 random
cases with up to three shapes, 82 ended later, at most by 58 %.

**The time left.** The stages of a study follow each other: train to the rung, train the kept
settings to their end, train further settings, confirm. Workers W share the R runs of a shape in
packs of n = min(⌈R K / W⌉, R, limit), where K is the number of shapes in the stage:

    shared = Σ R e c(n)/n / W                 e: epochs left of each run
    chain  = max e c(1)
    low    = max(Σ shared, Σ chain)           stages of different points overlap
    high   = Σ (shared + (1 − 1/W) chain)     each stage waits for its last run

For one stage these are the bounds of list scheduling (Graham 1969, SIAM J. Appl. Math. 17:416).
Nothing here knows Ray or a clock.
"""

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.point_planner import PointPlanner
from lmzoo.lab.study.pruners import KEEP
from lmzoo.lab.sweep.fleet.packing import Packer

STAY = 1.05
"""A worker keeps runs that it finishes at most so many times later than the deadline."""
PRECISION = 1.02
"""Relative precision of the deadline."""


class Cost(NamedTuple):
    """Seconds of an epoch of a pack of n runs, on a worker of usual speed: fixed + each · n."""

    fixed: float
    each: float

    def seconds(self, members: float) -> float:
        """Return the seconds of an epoch of a pack."""
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
    high = table.upper_bound()
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

    def upper_bound(self) -> float:
        """Return a deadline at which one slot can do everything, as do all others."""
        alone = sum(x.runs * x.epochs * x.cost.seconds(1) for x in self._loads)
        return float(2 * alone * self.slowness.max()) + 1e-9

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
UNCERTAIN = 0.15
"""Relative uncertainty of a shape's pace after one observation; it falls with their root."""
UNSEEN = 0.5
"""Relative uncertainty of the pace of a shape that has no observation."""
COMPILATION, LEAST = 20.0, 0.05
"""Seconds of a worker's first epoch that may be compilation, and the least share that is not."""
LEARN = 0.5
"""Weight of the last epoch in a worker's slowness."""
SPREAD = 0.1
"""Relative standard deviation of the sizes of packs from which the slope is known."""
CHANGED = 1.1
"""Ratio by which a number changes before it counts as another one."""


Sums = tuple[float, ...]


class Interval(NamedTuple):
    """Bounds of a quantity."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The geometric mean, whose relative error is least in the worst case."""
        return math.sqrt(self.low * self.high)


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
        """Whether there is an observation."""
        return bool(self._sums or self._first)

    def slowness(self, worker: str) -> float:
        """Return the seconds of a worker's epochs, relative to the usual worker's."""
        return self._slowness.get(worker, self._usual)

    def cost(self, shape: str, unknown: float) -> Cost:
        """Return a and b of a shape; `unknown` is b / (a + b) if no two sizes were measured."""
        return self._cost(shape, self._observed(shape), unknown)

    def seconds(self, shape: str, members: int) -> Interval:
        """Return bounds of c(n) on a median worker; for an unknown shape around the mean of all.

        There is an observation.
        """
        low, high = self._bounds(shape, self._observed(shape), members)
        if shape in self._sums:
            spread = 1 + UNCERTAIN / math.sqrt(self._sums[shape][0])
        elif shape in self._first or not self._sums:  # compilation may be part of it
            low, spread = max(low - COMPILATION, LEAST * low), 1.0
        else:
            spread = 1 + UNSEEN
        return Interval(low / spread * self._usual, high * spread * self._usual)

    def expected(self, shape: str, members: int, *, first: bool) -> float:
        """Return the most seconds of an epoch on a usual worker; `first` of the shape on it."""
        own = self._first.get(shape) if first else None
        most = self._bounds(shape, [own] if own else self._observed(shape), members).high
        return most + COMPILATION * (first and not own)

    def _observed(self, shape: str) -> list[Sums]:
        """Return the observations of a shape; of all shapes if it has none."""
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

    def _bounds(self, shape: str, observed: Sequence[Sums], members: int) -> Interval:
        """Return c(n): between constant and proportional while the slope is not known."""
        ends = [self._cost(shape, observed, unknown).seconds(members) for unknown in (0.0, 1.0)]
        return Interval(min(ends), max(ends))

    def _learn(
        self, worker: str, shape: str, members: int, seconds: float, kind: Mapping[str, Sums]
    ) -> None:
        """Compare an epoch with those of other workers."""
        others = [sums for other, sums in kind.items() if other != shape]
        share = 1.0
        if len(self._by[shape]) > 1 and shape in kind:
            expected = self._bounds(shape, [kind[shape]], members)
        elif len(self._by[shape]) == 1 and others:
            expected, share = self._bounds(shape, others, members), 0.5
        else:
            self._slowness.setdefault(worker, self._usual)
            return
        likely = min(max(seconds, expected.low), expected.high)  # of a usual worker
        found = share * math.log(seconds / likely)
        known = self._slowness.get(worker)
        before = math.log(known) if known else found
        self._slowness[worker] = math.exp(before + LEARN * (found - before))
        self._usual = statistics.median(self._slowness.values())
        self._note(worker, self._slowness[worker])

    def _note(self, name: str, value: float) -> None:
        """Start a new version if a number has changed."""
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


NARROW = 1.35
"""Ratio of the ends of an interval below which it is shown as one number."""


@dataclass(frozen=True)
class Work:
    """Runs of one shape in one stage of a study."""

    stage: int
    shape: str
    runs: int
    epochs: float
    """Epochs left of each run, the mean."""
    limit: int = 1
    """Maximum number of pack members."""
    least: float = 1.0
    """Share of the epochs that is trained at least; pruning saves the others."""


def time_left(work: Iterable[Work], pace: Pace, workers: int) -> Interval | None:
    """Return bounds of the seconds left; None if nothing has been measured, or nobody works."""
    stages: dict[int, list[Work]] = {}
    for part in work:
        if part.runs and part.epochs > 0:
            stages.setdefault(part.stage, []).append(part)
    if not stages:
        return Interval(0.0, 0.0)
    if not pace.known or not workers:
        return None
    bounds = [_stage(parts, pace, workers) for parts in stages.values()]
    (shared_low, shared_high), (chain_low, chain_high) = np.sum(bounds, 0).tolist()
    high = shared_high + (1 - 1 / workers) * chain_high
    return Interval(max(shared_low, chain_low), high)


def describe(left: Interval) -> str:
    """Return `about 12 min left`, or `10 to 20 min left` while the interval is wide."""
    if left.high <= NARROW * left.low or left.high < 5:
        return f"about {duration(left.middle)} left"
    low, high = duration(left.low), duration(left.high)
    if low == high:
        return f"about {high} left"
    if low.split()[1] == high.split()[1]:
        low = low.split()[0]
    return f"{low} to {high} left"


def duration(seconds: float) -> str:
    """Format a time as `45 s`, `12 min` or `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def elapsed(seconds: float) -> str:
    """Format the time since the start: as `duration`, with seconds below ten minutes."""
    if not 90 <= seconds < 600:
        return duration(seconds)
    return f"{seconds // 60:.0f} min {seconds % 60 // 1:.0f} s"


def _stage(parts: Sequence[Work], pace: Pace, workers: int) -> tuple[np.ndarray, np.ndarray]:
    runs = Counter[str]()
    for part in parts:
        runs[part.shape] += part.runs
    shared, chain = np.zeros(2), np.zeros(2)
    for part in parts:
        epochs, count = part.epochs * np.array([part.least, 1.0]), runs[part.shape]
        size = min(part.limit, count, math.ceil(count * len(runs) / workers))
        shared += epochs * pace.seconds(part.shape, size) * part.runs / size / workers
        chain = np.maximum(chain, epochs * pace.seconds(part.shape, 1))
    return shared, chain


TO_RUNG, TUNE, SEARCH, CONFIRM = range(4)
"""The stages, in order."""
PRUNED = 0.4
"""Share of its epochs that a run of the search trains at least, where a pruner may stop it."""


def work_left(planner: Planner, packer: Packer, memory: int = 0) -> Iterator[Work]:
    """Yield the work of each stage of each point; a run of two points counts once.

    `memory` is that of a worker's GPU in bytes; 0 is a CPU.
    """
    seen: set[str] = set()
    for point in planner.planners:
        runs = [
            run
            for run in (*point.tune_runs, *point.confirm_runs)
            if not run.status and run.id not in seen
        ]
        seen.update(run.id for run in runs)
        yield from _point_work(point, runs, packer, memory)


def _point_work(
    point: PointPlanner, runs: list[PlannedRun], packer: Packer, memory: int
) -> Iterator[Work]:
    study = point.study
    first = next(iter([*point.confirm_runs, *point.tune_runs]), None)
    if first is None or not first.id:
        return
    shape, limit = packer.pack_key(first), max(1, packer.max_members(first, memory))
    budget = 1 if point.point.closed_form else study.epochs

    def work(stage: int, lengths: list[float], least: float = 1.0) -> Work:
        mean = sum(lengths) / max(1, len(lengths))
        return Work(stage, shape, len(lengths), mean, limit, least)

    def left(run: PlannedRun, until: int = 0) -> float:
        return max(0.0, (until or budget) - run.trained)

    tune = [run for run in runs if run.stage == "tune"]
    design = [run for run in tune if run.index < len(point.design)]
    searched = [left(run) for run in tune if run.index >= len(point.design)]
    least = 1.0 if study.pruner == "none" else PRUNED
    if point.rung:
        yield work(TO_RUNG, [left(run, point.rung) for run in design])
        kept = min(len(design), max(1, int(KEEP * len(point.design))))
        yield work(TUNE, [budget - float(point.rung)] * kept)
    else:
        others = study.pruner not in ("none", "asha")
        yield work(TUNE, [left(run) for run in design], least if others else 1.0)
    later = point.samples - max(len(point.tune_runs), len(point.design))
    yield work(SEARCH, [*searched, *[float(budget)] * max(0, later)], least)
    confirm = [left(run) for run in runs if run.stage == "confirm"]
    if point.best_setting is None:
        confirm += [float(budget)] * point.seeds
    yield work(CONFIRM, confirm)


def epochs_done(planner: Planner) -> int:
    """Return the epochs that the runs have trained; a run of two points counts once."""
    epochs: dict[str, int] = {}
    for point in planner.planners:
        for run in (*point.tune_runs, *point.confirm_runs):
            epochs[run.id] = min(run.trained, 1) if point.point.closed_form else run.trained
    return sum(epochs.values())
