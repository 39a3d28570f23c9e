"""Decisions with known answers, drawn from the trainings.

    no-op     two disjoint blocks of `BUDGET` seeds of one configuration. Blocks are in a ring, and
              each is compared with the next four, or those before half the ring: a training is in
              at most eight decisions
    inert     base and the same function in other words, on equal seeds; disjoint blocks
    change    two configurations on equal seeds. Their effect is that of all other seeds, which this
              decision does not see. Two disjoint blocks of seeds for each pair

The effect is the difference of means over the root mean square of the two standard deviations. It
counts as known if it is more than three standard errors from 0. A run that diverged has twice the
loss of a uniform guess. A change is a trade if its mean and its median have different signs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.crash_test.judges import BUDGET, Array, Case
from benchmarks.crash_test.population import JUDGED, STREAM
from benchmarks.crash_test.trainings import failure_loss
from lmzoo.base.seeds import derive_seed

PAIRS = 30
"""Random pairs of configurations of a study, besides the base with each change."""
FLOOR = 5
Seen = range | frozenset[int]
"""Seeds that a judge sees."""
KNOWN = 3.0
"""Standard errors from 0 of a known effect."""
LEAST_TRUTH = 24
"""Seeds without which the effect of a configuration is not known."""


@dataclass(frozen=True)
class Decision:
    """A case and its right answer."""

    kind: str
    pair: str
    case: Case
    effect: float = 0.0
    """In standard deviations of a seed; 0 for no-ops and inert changes."""
    known: bool = True
    trade: bool = False


class Pool:
    """The trainings of a study: losses by variant and seed."""

    def __init__(self, frame: pl.DataFrame, sigma: float) -> None:
        """`sigma` is the standard deviation that a rule assumes: that of other studies."""
        first = frame.row(0, named=True)
        self.study, self.family, self.task = first["study"], first["family"], first["task"]
        self.sigma, self.failure = sigma, failure_loss(self.task)
        filled = frame.filter(pl.col("kind") != "tune").with_columns(
            pl.col("loss").cast(pl.Float64).fill_null(self.failure).fill_nan(self.failure)
        )
        self.kinds: dict[str, str] = dict(sorted({*filled.select("variant", "kind").iter_rows()}))
        self._effects: dict[tuple[str, str, Seen], tuple[float, bool, bool]] = {}
        self.losses: dict[str, dict[int, float]] = {name: {} for name in sorted(self.kinds)}
        for variant, seed, loss in filled.select("variant", "seed", "loss").iter_rows():
            self.losses[variant][seed] = min(loss, self.failure)

    def all(self, variant: str) -> Array:
        """Return the losses of all seeds, in their order."""
        found = self.losses[variant]
        return np.array([found[seed] for seed in sorted(found)])

    def at(self, variant: str, begin: int, end: int) -> Array:
        """Return the losses of these seeds, NaN where a run is missing."""
        found = self.losses.get(variant, {})
        return np.array([found.get(seed, np.nan) for seed in range(begin, end)])

    def unseen(self, variant: str, seen: Seen = range(JUDGED)) -> Array:
        """Return the losses of all seeds but those that a judge sees."""
        found = self.losses[variant]
        return np.array([found[seed] for seed in sorted(found) if seed not in seen])

    @cached_property
    def configurations(self) -> list[str]:
        """The variants whose effect is known or can be: not the inert ones."""
        return [
            name
            for name, kind in self.kinds.items()
            if kind in ("base", "change") and len(self.unseen(name)) >= LEAST_TRUTH
        ]

    def effect(self, a: str, b: str, seen: Seen = range(JUDGED)) -> tuple[float, bool, bool]:
        """Return the effect of b against a in standard deviations, if it is known, and a trade."""
        key = a, b, seen
        if key not in self._effects:
            self._effects[key] = _effect(self.unseen(a, seen), self.unseen(b, seen))
        return self._effects[key]

    def case(self, a: Array, b: Array, floor: Array, *, paired: bool = True) -> Case:
        """Return a case of this study."""
        return Case(a, b, floor[:FLOOR], self.sigma, self.failure, paired)


def _effect(x: Array, y: Array) -> tuple[float, bool, bool]:
    difference = float(y.mean() - x.mean())
    sd = float(np.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2)) or 1e-12
    error = float(np.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))) or 1e-12
    middle = float(np.median(y) - np.median(x))
    return difference / sd, abs(difference) > KNOWN * error, difference * middle < 0


def pools(trainings: pl.DataFrame) -> list[Pool]:
    """Return the pool of each study that has a base with enough seeds."""
    known = trainings.filter(pl.col("variant") == "base", pl.col("loss").is_not_null())
    spread = known.group_by("study", "task").agg(pl.col("loss").std().alias("sd"), pl.len())
    spread = spread.filter(pl.col("len") >= 2 * BUDGET)
    found = []
    for (study,), frame in trainings.group_by("study", maintain_order=True):
        if study not in set(spread["study"]):
            continue
        others = spread.filter(pl.col("task") == frame["task"][0], pl.col("study") != study)
        sd = others["sd"].median() if len(others) else spread["sd"].median()
        found.append(Pool(frame, float(sd)))  # type: ignore[arg-type]
    return found


def decisions(pool: Pool) -> Iterator[Decision]:
    """Yield all decisions of a study."""
    yield from no_ops(pool)
    yield from inert(pool)
    yield from changes(pool)


def no_ops(pool: Pool) -> Iterator[Decision]:
    """Yield the decisions about exact no-ops: other seeds of one configuration."""
    for name in (name for name, kind in pool.kinds.items() if kind != "inert"):
        blocks = _blocks(pool.all(name))
        count = len(blocks)
        for offset in (1, 2, 3, 4):
            if count <= 2 * offset:  # the ring would repeat a pair
                continue
            for i in range(count):
                a, b = blocks[i], blocks[(i + offset) % count]
                floor = blocks[(i - 1) % count]
                yield Decision("no-op", name, pool.case(a, b, floor, paired=False))


def inert(pool: Pool) -> Iterator[Decision]:
    """Yield the decisions about the same function in other words, on equal seeds."""
    for name in (name for name, kind in pool.kinds.items() if kind == "inert"):
        end = max((s for s in pool.losses[name] if s < STREAM), default=-1) + 1
        for begin in range(0, end - BUDGET + 1, BUDGET):
            a, b = (pool.at(v, begin, begin + BUDGET) for v in ("base", name))
            floor = pool.at("base", STREAM + begin, STREAM + begin + FLOOR)
            if not np.isnan([*a, *b, *floor]).any():
                yield Decision("inert", name, pool.case(a, b, floor))


def changes(pool: Pool) -> Iterator[Decision]:
    """Yield the decisions about changes; which of two is the incumbent is drawn."""
    random = np.random.default_rng(derive_seed(0, pool.study, "pairs"))
    names = pool.configurations
    others = [name for name in names if name != "base"]
    pairs = [("base", name) for name in others] if "base" in names else []
    rest = [(a, b) for i, a in enumerate(others) for b in others[i + 1 :]]
    random.shuffle(rest)
    for a, b in pairs + rest[:PAIRS]:
        a, b = (a, b) if random.random() < 0.5 else (b, a)
        for begin in range(0, JUDGED - BUDGET - FLOOR + 1, BUDGET):
            x, y = (pool.at(v, begin, begin + BUDGET) for v in (a, b))
            seen = range(begin, begin + BUDGET + FLOOR)
            floor = pool.at(a, begin + BUDGET, seen.stop)
            if not np.isnan([*x, *y, *floor]).any():
                effect = pool.effect(a, b, seen)
                yield Decision("change", f"{a} > {b}", pool.case(x, y, floor), *effect)


def _blocks(losses: Array) -> list[NDArray[np.float64]]:
    whole = len(losses) // BUDGET
    return [losses[BUDGET * i : BUDGET * (i + 1)] for i in range(whole)]
