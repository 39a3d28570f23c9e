"""How long the epochs of packs take: by shape, and by worker.

    c(n) = s (a + b n)      seconds of an epoch of a pack of n runs

a and b belong to the shape, the slowness s to the worker. If packs of one size only were seen, c is
between constant and proportional to n. The first epoch of a shape on a worker includes compilation,
up to `COMPILATION` seconds; it is used only until another epoch has ended.

A worker's slowness is learnt from epochs of shapes that other workers have trained too. Of a shape
that it alone has trained, half of the difference (in logarithms) from the other shapes counts as
the worker's, and half as the shape's, until another worker trains it.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lmzoo.lab.sweep.fleet.placement import Cost

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


class Interval(NamedTuple):
    """Bounds of a quantity."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The geometric mean, whose relative error is least in the worst case."""
        return math.sqrt(self.low * self.high)


class Pace:
    """Seconds of an epoch of a pack, by shape: a + b n, by weighted least squares.

    The weights are c^(-½): an epoch that took long for other reasons counts less.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, ...]] = {}
        """Shape -> number of observations, weighted sums of 1, n, n², c, n c."""
        self._first: dict[str, tuple[float, ...]] = {}
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
        if worker:
            self._by.setdefault(shape, set()).add(worker)
            self._learn(worker, shape, members, seconds, first=first)
        sums = self._first if first else self._sums
        n, c = members, seconds / self.slowness(worker)
        old, w = sums.get(shape, (0.0,) * 6), c**-0.5
        new = (1, w, w * n, w * n * n, w * c, w * n * c)
        sums[shape] = own = tuple(FORGET * x + y for x, y in zip(old, new, strict=True))
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

    def late(self, worker: str, slowness: float) -> None:
        """Record that a worker is at least so slow: its epoch has not ended in time."""
        if slowness > self.slowness(worker):
            self._set_slowness(worker, slowness)

    def cost(self, shape: str, unknown: float) -> Cost:
        """Return a and b of a shape; `unknown` is b / (a + b) if no two sizes were measured."""
        slope = self._slopes.get(shape)
        if slope is None:
            known = self._slopes.values()
            slope = sum(known) / len(known) if known else unknown
        own = self._sums.get(shape) or self._first.get(shape)
        every = [own] if own else [*(self._sums or self._first).values()]
        alone = 1.0
        if every:
            levels = [(sums[4] / sums[1], sums[2] / sums[1]) for sums in every]
            alone = sum(c / (1 + slope * (n - 1)) for c, n in levels) / len(levels)
        return Cost(alone * (1 - slope), alone * slope)

    def seconds(self, shape: str, members: int) -> Interval:
        """Return bounds of c(n) on a median worker; for an unknown shape around the mean of all.

        Raises:
            ValueError: There is no observation.
        """
        if own := self._sums.get(shape):
            low, high = _fit(own, members)
            spread = 1 + UNCERTAIN / math.sqrt(own[0])
        elif self._sums:
            low, high = _mean(self._sums.values(), members)
            spread = 1 + UNSEEN
        else:
            own, spread = self._first.get(shape), 1.0
            low, high = _mean([own] if own else self._first.values(), members)
            low = max(low - COMPILATION, LEAST * low)
        return Interval(low / spread * self._usual, high * spread * self._usual)

    def expected(self, shape: str, members: int, *, first: bool) -> float:
        """Return the most seconds of an epoch on a usual worker; `first` of the shape on it."""
        kind = (self._first if first else self._sums) or self._sums or self._first
        own = kind.get(shape)
        most = _mean([own] if own else kind.values(), members).high
        return most + COMPILATION * (first and kind is self._sums)

    def _learn(self, worker: str, shape: str, members: int, seconds: float, *, first: bool) -> None:
        """Compare an epoch with those of other workers."""
        kind = self._first if first else self._sums
        others = [sums for other, sums in kind.items() if other != shape]
        share = 1.0
        if len(self._by[shape]) > 1 and shape in kind:
            expected = _fit(kind[shape], members)
        elif len(self._by[shape]) == 1 and others:
            expected, share = _mean(others, members), 0.5
        else:
            self._slowness.setdefault(worker, self._usual)
            return
        likely = min(max(seconds, expected.low), expected.high)  # of a usual worker
        found = share * math.log(seconds / likely)
        known = self._slowness.get(worker)
        before = math.log(known) if known else found
        self._set_slowness(worker, math.exp(before + LEARN * (found - before)))

    def _set_slowness(self, worker: str, slowness: float) -> None:
        self._slowness[worker] = slowness
        self._usual = statistics.median(self._slowness.values())
        self._note(worker, slowness)

    def _note(self, name: str, value: float) -> None:
        """Start a new version if a number has changed."""
        before = self._seen.get(name)
        if before is None or not before / CHANGED <= value <= before * CHANGED:
            self._seen[name] = value
            self.version += 1


def _mean(shapes: Iterable[Sequence[float]], members: int) -> Interval:
    """Return the mean bounds of c(n) over shapes."""
    lows, highs = zip(*(_fit(sums, members) for sums in shapes), strict=True)
    return Interval(sum(lows) / len(lows), sum(highs) / len(highs))


def _fit(sums: Sequence[float], members: int) -> Interval:
    """Return c(n); bounds if only one size was seen."""
    _, w, n, nn, c, nc = sums
    size, seconds = n / w, c / w
    spread = nn / w - size**2
    constant, proportional = seconds, seconds * members / size
    if spread < 1e-6 * size**2:
        return Interval(min(constant, proportional), max(constant, proportional))
    slope = (nc / w - size * seconds) / spread
    slope = min(max(slope, 0.0), seconds / size)  # neither a nor b is negative
    fitted = seconds + slope * (members - size)
    return Interval(fitted, fitted)


def _slope(sums: Sequence[float]) -> float | None:
    """Return b / (a + b); None if packs of about one size were seen."""
    _, w, n, nn, _, _ = sums
    size = n / w
    if nn / w - size**2 < (SPREAD * size) ** 2:
        return None
    one, two = _fit(sums, 1).middle, _fit(sums, 2).middle
    return min(1.0, (two - one) / one)
