"""What an epoch of a pack costs, and how many workers train what.

    c(n) = a + b n      seconds of an epoch of a pack of n runs

a and b belong to the shape. If packs of one size only were seen, c is between constant and
proportional to n. The first epoch of a shape on a worker includes compilation, up to `COMPILATION`
seconds; it is used only until another epoch has ended.

**The division.** Each shape gets a worker. Each further worker goes to the shape that would end
last, if it makes that shape end sooner. So where a pack costs no more than a
run, a shape stays together; where it costs as much as its runs, all workers share it. Where there
are more shapes than workers, a worker trains one after the other.

**Slow workers.** The slowness of a worker is the time of its epochs relative to the fastest worker
with the same shape. Of a shape that it alone has trained, the root of the ratio to the fastest
shape counts, because the shape may be slow.

Nothing here knows Ray or a clock.
"""

import functools
import heapq
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from lmzoo.lab.study.planner import Planner


class Cost(NamedTuple):
    """Seconds of an epoch of a pack of n runs: fixed + each · n."""

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
    limit: int
    """The largest pack."""

    def seconds(self, workers: int) -> float:
        """Return until when so many workers have trained the runs, in packs of equal size."""
        share = max(1.0, self.runs / workers)
        packs = max(1.0, share / self.limit)
        return self.epochs * packs * self.cost.seconds(share / packs)


ROUNDING = 1 + 1e-6
"""Times that differ less are equal."""


def divide(loads: Sequence[Load], workers: int) -> tuple[dict[str, int], list[float]]:
    """Return how many workers each load gets, and the time with 1, 2, ... of them.

    The list ends where a further worker does not make all runs end sooner.
    """
    if not loads:
        return {}, []
    numbers = {load.key: 1 for load in loads}
    alone = [load.seconds(1) for load in loads]
    longest = max(alone)
    # Fewer workers than loads train one after another.
    times = [max(longest, sum(alone) / count) for count in range(1, min(len(loads), workers) + 1)]
    latest = [(-seconds, place) for place, seconds in enumerate(alone)]
    heapq.heapify(latest)
    settled = 0.0
    for _ in range(workers - len(loads)):
        # The load that ends last gets the next worker, if that makes it end sooner.
        while latest:
            negative, place = heapq.heappop(latest)
            seconds = -negative
            load = loads[place]
            more = numbers[load.key] + 1
            shorter = load.seconds(more)
            if more <= load.runs and shorter * ROUNDING < seconds:
                numbers[load.key] = more
                heapq.heappush(latest, (-shorter, place))
                break
            # No worker ends this load sooner, so the sweep cannot end before it.
            settled = max(settled, seconds)
        if latest and settled < -latest[0][0]:
            times.append(-latest[0][0])
    return numbers, times


FORGET = 0.95
"""Weight of an observation, relative to the next one of its shape."""
COMPILATION = 20.0
"""Seconds of a worker's first epoch that may be compilation."""
SPREAD = 0.1
"""Relative standard deviation of the sizes of packs from which the slope is known."""

Sums = tuple[float, ...]


class Epoch(NamedTuple):
    """An epoch of a pack, or the mean of several."""

    members: float
    seconds: float


class Pace:
    """What epochs have taken, by shape: a + b n, by weighted least squares.

    The weights are c^(-½): an epoch that took long for other reasons counts less.
    """

    def __init__(self):
        self._sums = dict[str, Sums]()
        """Shape -> number of observations, weighted sums of 1, n, n², c, n c."""
        self._first = dict[str, Sums]()
        """The same for the first epochs of workers."""
        self._slopes = dict[str, float]()
        """Shape -> b / (a + b), as it was last known."""
        self._by = defaultdict[str, dict[str, Epoch]](dict)
        """Shape -> worker -> its usual epoch."""
        # A study may have hundreds of shapes, and the driver asks for all after each epoch.
        self.cost = functools.cache(self._cost_of)
        self.slowness = functools.cache(self._slowness_of)
        self._alone = functools.cache(self._alone_of)

    def add(
        self, shape: str, members: int, seconds: float, *, first: bool = False, worker: str = ""
    ):
        """Add an epoch of a pack that took this long; `first` of the shape on its worker."""
        kind = self._sums
        if first:
            # Compilation is part of it, which would make the shape look slow.
            kind = self._first
        n = members
        c = max(seconds, 1e-6)
        w = c**-0.5
        new = (1, w, w * n, w * n * n, w * c, w * n * c)
        old = kind.get(shape, (0.0,) * 6)
        sums = [FORGET * before + now for before, now in zip(old, new, strict=True)]
        kind[shape] = tuple(sums)
        slope = _slope(kind[shape])
        if slope is not None:
            self._slopes[shape] = slope
        for known in (self.cost, self.slowness, self._alone):
            known.cache_clear()
        by = self._by[shape]
        before = by.get(worker, Epoch(n, c))
        mean = (before.members + n) / 2
        by[worker] = Epoch(mean, (before.seconds + c) / 2)

    def _alone_of(self, shape: str) -> dict[str, float]:
        """Return the seconds that an epoch of one run would take, by worker.

        It uses the costs that are known now. A cost that was guessed, before packs had two sizes,
        would make a worker with another size look slow.
        """
        cost = self.cost(shape, 1.0)
        return {
            worker: seconds * cost.seconds(1) / cost.seconds(members)
            for worker, (members, seconds) in self._by[shape].items()
        }

    def _slowness_of(self, worker: str) -> float:
        """Return the seconds of a worker's epochs, relative to the fastest worker's."""
        shapes = [self._alone(shape) for shape in self._by]
        fastest = min((min(alone.values()) for alone in shapes), default=1.0)
        ratios = []
        for alone in shapes:
            if worker not in alone:
                continue
            own = alone[worker]
            if len(alone) > 1:
                ratios.append(own / min(alone.values()))
            else:
                # Nobody else has trained the shape, which may be slow: half of the blame.
                ratios.append((own / fastest) ** 0.5)
        if not ratios:
            return 1.0
        return statistics.median(ratios)

    @property
    def known(self) -> bool:
        return bool(self._sums or self._first)

    def _cost_of(self, shape: str, unknown: float) -> Cost:
        """Return a and b of a shape; `unknown` is b / (a + b) if no two sizes were measured."""
        # Shapes that were never trained cost the same.
        if shape and shape not in self._sums and shape not in self._first:
            return self.cost("", unknown)
        return self._cost(shape, self._observed(shape), unknown)

    def expected(self, shape: str, members: int, *, first: bool) -> tuple[float, float]:
        """Return the most seconds of an epoch, and of its compilation.

        If it is the `first` of the shape on its worker, it is as long as other first epochs. While
        the slope is not known, c(n) is between constant and proportional.
        """
        observed = self._observed(shape)
        compilation = 0.0
        if first and shape in self._first:
            observed = [self._first[shape]]
        elif first:
            compilation = COMPILATION
            if self._first:
                observed = list(self._first.values())
        constant = self._cost(shape, observed, 0.0)
        proportional = self._cost(shape, observed, 1.0)
        return max(constant.seconds(members), proportional.seconds(members)), compilation

    def _observed(self, shape: str) -> list[Sums]:
        """Return the sums of a shape, or of all shapes if it was never trained."""
        for sums in (self._sums, self._first):
            if shape in sums:
                return [sums[shape]]
        # First epochs include compilation: they count only while there are no others.
        return list((self._sums or self._first).values())

    def _cost(self, shape: str, observed: Sequence[Sums], unknown: float) -> Cost:
        slope = self._slopes.get(shape)
        # Packs of one size leave the slope open; other shapes of the study are the best guess.
        if slope is None:
            slope = unknown
            if self._slopes:
                slope = sum(self._slopes.values()) / len(self._slopes)
        if not observed:
            return Cost(1 - slope, slope)
        total = 0.0
        for _, weight, weighted_n, _, weighted_c, _ in observed:
            n = weighted_n / weight
            relative = 1 + slope * (n - 1)
            total += weighted_c / weight / relative
        alone = total / len(observed)
        return Cost(alone * (1 - slope), alone * slope)


def _slope(sums: Sums) -> float | None:
    """Return b / (a + b), neither negative; None if packs of about one size were seen."""
    _, w, n, nn, c, nc = sums
    size = n / w
    seconds = c / w
    spread = nn / w - size**2
    # Sizes that are almost equal say nothing of the slope.
    if spread < (SPREAD * size) ** 2:
        return None
    each = (nc / w - size * seconds) / spread
    # Epochs that took long for other reasons may give a negative slope, or a negative fixed part.
    each = min(max(each, 0.0), seconds / size)
    alone = seconds + each * (1 - size)
    return min(1.0, each / alone)


PRUNED = 0.85
"""Share of its epochs that a tune run trains in the mean where a pruner may stop it."""


def epochs_left(planner: Planner) -> float:
    """Return the epochs that the runs of a study will train; a run of two points counts once."""
    seen = set[str]()
    epochs = 0.0
    for point in planner.points:
        pruned = 1.0
        if point.study.pruner != "none":
            pruned = PRUNED
        budget = point.study.epochs
        if point.point.closed_form:
            budget = 1
        for run in point.tune_runs + point.confirm_runs:
            if run.status or run.id in seen:
                continue
            # Two points may share a run, which is trained once.
            seen.add(run.id)
            share = 1.0
            if run.stage == "tune":
                share = pruned
            epochs += share * max(0, budget - run.trained)
        # Runs that the sampler has not suggested yet.
        later = max(0, point.samples - len(point.tune_runs))
        epochs += pruned * budget * later
        if point.best_setting is None:
            epochs += budget * point.seeds
    return epochs


def epochs_done(planner: Planner) -> int:
    """Return the epochs that the runs have trained; a run of two points counts once."""
    epochs = dict[str, int]()
    for point in planner.points:
        for run in point.tune_runs + point.confirm_runs:
            epochs[run.id] = run.trained
            if point.point.closed_form:
                epochs[run.id] = min(run.trained, 1)
    return sum(epochs.values())
