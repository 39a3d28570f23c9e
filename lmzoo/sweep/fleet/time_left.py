"""The time that a sweep still needs, as an interval.

The stages of a study follow each other: train to the rung, train the kept settings to their end,
train further settings, confirm. Workers W share the R runs of a shape in packs of n:

    n      = min(⌈R K / W⌉, R, limit)         K: the number of shapes in the stage
    c(n)   = a + b n                          seconds of an epoch of a pack, `Pace`
    shared = Σ R e c(n)/n / W                 e: epochs left of each run
    chain  = max e c(1)
    low    = max(Σ shared, Σ chain)           stages of different points overlap
    high   = Σ (shared + (1 − 1/W) chain)     each stage waits for its last run

For one stage these are the bounds of list scheduling. If packs of one size only were seen, c is
between constant and proportional to n. The first epoch of a shape on a worker includes compilation,
up to `COMPILATION` seconds; it is used only until another epoch has ended. The module is pure: it
knows neither Ray nor a clock.

Graham 1969 (SIAM J. Appl. Math. 17:416).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

FORGET = 0.95
"""Weight of an observation, relative to the next one of its shape."""
UNCERTAIN = 0.15
"""Relative uncertainty of a shape's pace after one observation; it falls with their root."""
UNSEEN = 0.5
"""Relative uncertainty of the pace of a shape that has no observation."""
COMPILATION, LEAST = 20.0, 0.05
"""Seconds of a worker's first epoch that may be compilation, and the least share that is not."""
NARROW = 1.35
"""Ratio of the ends of an interval below which it is shown as one number."""


class Interval(NamedTuple):
    """Bounds of a quantity."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The geometric mean, whose relative error is least in the worst case."""
        return math.sqrt(self.low * self.high)


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


class Pace:
    """Seconds of an epoch of a pack, by shape: c(n) = a + b n, by weighted least squares.

    The weights are c^(-½): an epoch that took long for other reasons counts less.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, ...]] = {}
        """Shape -> number of observations, weighted sums of 1, n, n², c, n c."""
        self._first: dict[str, tuple[float, ...]] = {}
        """The same for the first epochs of workers."""

    def add(self, shape: str, members: int, seconds: float, *, first: bool = False) -> None:
        """Add an epoch of a pack that took this long; `first` of the shape on its worker."""
        n, c = members, max(seconds, 1e-6)
        sums = self._first if first else self._sums
        old, w = sums.get(shape, (0.0,) * 6), c**-0.5
        new = (1, w, w * n, w * n * n, w * c, w * n * c)
        sums[shape] = tuple(FORGET * x + y for x, y in zip(old, new, strict=True))

    @property
    def known(self) -> bool:
        """Whether there is an observation."""
        return bool(self._sums or self._first)

    def seconds(self, shape: str, members: int) -> Interval:
        """Return bounds of c(n); around the mean of all shapes for a shape without an observation.

        Raises:
            ValueError: There is no observation.
        """
        if own := self._sums.get(shape):
            low, high = _fit(own, members)
            spread = 1 + UNCERTAIN / math.sqrt(own[0])
            return Interval(low / spread, high * spread)
        if self._sums:
            low, high = _mean(self._sums.values(), members)
            return Interval(low / (1 + UNSEEN), high * (1 + UNSEEN))
        own = self._first.get(shape)
        low, high = _mean([own] if own else self._first.values(), members)
        return Interval(max(low - COMPILATION, LEAST * low), high)


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
    bounds = [_stage(parts, pace, workers) for _, parts in sorted(stages.items())]
    low = max(sum(shared.low for shared, _ in bounds), sum(chain.low for _, chain in bounds))
    alone = 1 - 1 / workers
    return Interval(low, sum(shared.high + alone * chain.high for shared, chain in bounds))


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


def _stage(parts: Sequence[Work], pace: Pace, workers: int) -> tuple[Interval, Interval]:
    """Return (work / workers, longest chain) of a stage, in seconds."""
    runs: Mapping[str, int] = _runs_by_shape(parts)
    shared_low = shared_high = chain_low = chain_high = 0.0
    for part in parts:
        count = runs[part.shape]
        size = min(part.limit, count, math.ceil(count * len(runs) / workers))
        low, high = (part.epochs * c for c in pace.seconds(part.shape, size))
        low *= part.least
        packs = part.runs / size
        shared_low, shared_high = shared_low + packs * low, shared_high + packs * high
        low, high = (part.epochs * c for c in pace.seconds(part.shape, 1))
        chain_low, chain_high = max(chain_low, part.least * low), max(chain_high, high)
    shared = Interval(shared_low / workers, shared_high / workers)
    return shared, Interval(chain_low, chain_high)


def _runs_by_shape(parts: Sequence[Work]) -> dict[str, int]:
    runs: dict[str, int] = {}
    for part in parts:
        runs[part.shape] = runs.get(part.shape, 0) + part.runs
    return runs


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
