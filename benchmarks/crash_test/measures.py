"""What the judges do: a row for each decision and judge, and rates with intervals over studies.

Intervals are the 2.5 and 97.5 % points of 2,000 bootstrap samples of studies, since decisions of
one study share trainings. Fewer than `FEW` studies say too little about their spread: there the
interval of a share is Wilson's, of decisions. A share without an event in n decisions has the upper
end 3 / n.
"""

import os
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from benchmarks.crash_test.decisions import Pool, changes, decisions, no_ops
from benchmarks.crash_test.judges import BUDGET, JUDGES, Array, Case, available
from benchmarks.crash_test.population import STREAM
from benchmarks.crash_test.series import run_all
from lmzoo.lab.statistics.compared import compared

RANK = "lmzoo rank"
NO_OPS, EXTRA = 8, 32
"""No-ops of a ranking, and further seeds of its reference, which is in all contrasts."""
BINS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Limits of the sizes of effects, in standard deviations of a seed."""
RESAMPLES, FEW = 2000, 10
CURVE = (3, 4, 5, 6, 8, 10, 12, 16, 20, 24)
"""Numbers of seeds at which the power of a fixed rule is computed."""
LOOKING = ("lmzoo judge", "evalsig, sequential", "e-value")
"""Judges that stop when they know enough."""
CURVED = ("Welch", "paired t", "Mann-Whitney", "bootstrap", "evalsig", "statgate")
"""Fixed rules; statgate takes no fewer than five."""
LEAST = {"statgate": 5}
NULLS = 4
"""Every fourth no-op says how often fixed rules keep one, at each number of seeds."""


class Rate(NamedTuple):
    """A share or a mean with its 95 % interval, and the number of decisions."""

    value: float
    low: float
    high: float
    decisions: int

    def text(self, *, percent: bool = True) -> str:
        """Return it as a cell of a table."""
        if not self.decisions:
            return "—"
        scale, form = (100, ".1f") if percent else (1, "+.2f")
        value, low, high = (f"{scale * x:{form}}" for x in self[:3])
        return f"{value} ({low} to {high})"


def outcomes(pool: Pool, share: float = 1.0) -> pl.DataFrame:
    """Return what every judge says of every decision of a study; of a share of them, to be fast."""
    step = round(1 / share)
    rows = []
    for number, decision in enumerate(decisions(pool)):
        if number % step:
            continue
        facts = (decision.kind, decision.pair, decision.effect, decision.known, decision.trade)
        for name, judge in available().items():
            word, seeds = judge.decide(decision.case)
            rows.append((number, *facts, name, word, seeds))
    rows += [(-1, *row) for row in _ranked(pool)]
    names = ("number", "kind", "pair", "effect", "known", "trade", "judge", "word", "seeds")
    frame = pl.DataFrame(rows, schema=list(names), orient="row", infer_schema_length=None)
    study = [pl.lit(x).alias(n) for n, x in _facts(pool).items()]
    return frame.with_columns(*study)


def _facts(pool: Pool) -> dict[str, str]:
    return {"study": pool.study, "family": pool.family, "task": pool.task}


def _ranked(pool: Pool) -> list[tuple[Any, ...]]:
    """Return the rows of the ranking of a study: base, changes, inert changes and no-ops.

    It is made twice, with disjoint seeds.
    """
    rows = []
    for turn in range(2):
        begin = BUDGET * turn
        points = {n: pool.at(n, begin, begin + BUDGET) for n in pool.kinds if n != "base"}
        for i in range(NO_OPS):
            start = STREAM + BUDGET * (NO_OPS * turn + i)
            points[f"no-op {i}"] = pool.at("base", start, start + BUDGET)
        points = {n: x for n, x in points.items() if not np.isnan(x).any()}
        more = STREAM + 2 * NO_OPS * BUDGET + EXTRA * turn
        base = np.append(
            pool.at("base", begin, begin + BUDGET), pool.at("base", more, more + EXTRA)
        )
        if np.isnan(base).any() or len(points) < 4:
            continue
        x = np.full((1 + len(points), len(base)), np.nan)
        x[0], x[1:, :BUDGET] = base, [*points.values()]
        x[x >= pool.failure] = np.inf
        sign = compared(x, 0, margin=0.0).sign[1:]
        seen = frozenset((*range(begin, begin + BUDGET), *range(more, more + EXTRA)))
        for name, word in zip(points, -sign, strict=True):
            kind = pool.kinds.get(name, "no-op")
            known = (0.0, True, False)
            if kind == "change" and {"base", name} <= set(pool.configurations):
                known = pool.effect("base", name, seen)
            elif kind == "change":
                continue
            rows.append((kind, f"base > {name}", *known, RANK, int(word), BUDGET))
    return rows


def power_curve(pool: Pool) -> pl.DataFrame:
    """Return the words of fixed rules about changes, and no-ops, at several numbers of seeds."""
    rows = []
    for pair in dict.fromkeys(decision.pair for decision in changes(pool)):
        a, b = pair.split(" > ")
        x, y = (pool.at(name, 0, CURVE[-1]) for name in (a, b))
        effect, known, _ = pool.effect(a, b, range(CURVE[-1]))
        if np.isnan([*x, *y]).any() or not known:
            continue
        for n in CURVE:
            case = Case(x[:n], y[:n], x[:n], pool.sigma, pool.failure)
            for name in (name for name in CURVED if name in available()):
                word = JUDGES[name].decide(case).word if n >= LEAST.get(name, 0) else 0
                rows.append((pair, effect, name, n, word))
        for n in (BUDGET, CURVE[-1]):
            case = Case(x[:n], y[:n], x[:n], pool.sigma, pool.failure)
            for name in (name for name in LOOKING if name in available()):
                word, seeds = JUDGES[name].decide(case)
                rows.append((pair, effect, f"{name}, at most {n}", seeds, word))
    for one in [*no_ops(pool)][::NULLS]:
        for n in (n for n in CURVE if n <= BUDGET):
            case = Case(one.case.a[:n], one.case.b[:n], one.case.a[:n], pool.sigma, pool.failure)
            for name in (name for name in CURVED if name in available()):
                word = JUDGES[name].decide(case).word if n >= LEAST.get(name, 0) else 0
                rows.append((one.pair, 0.0, name, n, word))
    names = ("pair", "effect", "judge", "seeds", "word")
    frame = pl.DataFrame(rows, schema=list(names), orient="row")
    return frame.with_columns(*[pl.lit(x).alias(n) for n, x in _facts(pool).items()])


def series(pool: Pool, repeats: int, length: int) -> pl.DataFrame:
    """Return the series of a study."""
    frame = pl.DataFrame([one._asdict() for one in run_all(pool, repeats, length)])
    return frame.with_columns(*[pl.lit(x).alias(n) for n, x in _facts(pool).items()])


def over_studies(
    function: Callable[..., pl.DataFrame], found: Sequence[Pool], *args: Any
) -> pl.DataFrame:
    """Return the rows of all studies, computed by as many processes as there are cores."""
    work = [(pool, *args) for pool in found]
    count = min(len(os.sched_getaffinity(0)), len(work))
    if count == 1:
        frames = [function(*job) for job in work]
    else:
        with get_context("spawn").Pool(count) as processes:
            frames = processes.starmap(function, work, chunksize=1)
    return pl.concat([frame for frame in frames if len(frame)], how="vertical_relaxed")


def rate(frame: pl.DataFrame, event: pl.Expr, *, share: bool = True) -> Rate:
    """Return the share of rows with an event, or the mean of an expression (`share` is False)."""
    if frame.is_empty():
        return Rate(np.nan, np.nan, np.nan, 0)
    found = frame.group_by("study", maintain_order=True).agg(
        event.cast(pl.Float64).sum().alias("sum"), pl.len().alias("count")
    )
    sums, counts = (found[name].to_numpy().astype(float) for name in ("sum", "count"))
    total = int(counts.sum())
    rows = np.random.default_rng(0).integers(0, len(sums), (RESAMPLES, len(sums)))
    drawn: Array = sums[rows].sum(1) / counts[rows].sum(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    value = sums.sum() / total
    if share and len(sums) < FEW:
        middle, half = (
            value + 1.92 / total,
            1.96 * np.sqrt(value * (1 - value) / total + (0.98 / total) ** 2),
        )
        low, high = ((middle + side * half) / (1 + 3.84 / total) for side in (-1, 1))
    elif share and not sums.any():
        high = min(1.0, 3 / total)
    return Rate(value, max(float(low), 0.0) if share else float(low), float(high), total)


def keeps(frame: pl.DataFrame, kind: str) -> Rate:
    """Return the share of false keeps of no-ops or inert changes."""
    return rate(frame.filter(pl.col("kind") == kind), pl.col("word") > 0)


def wrong_signs(frame: pl.DataFrame) -> Rate:
    """Return the share of known effects with the wrong word, those of at least 0.2."""
    part = _known(frame)
    return rate(part, pl.col("word") * pl.col("effect") > 0)


def power(frame: pl.DataFrame, low: float, high: float) -> Rate:
    """Return the share of improvements of this size that are kept."""
    part = _known(frame).filter(-pl.col("effect") >= low, -pl.col("effect") < high)
    return rate(part, pl.col("word") > 0)


def right(frame: pl.DataFrame, low: float, high: float) -> Rate:
    """Return the share of effects of this size, of both signs, with the right word."""
    part = _known(frame).filter(pl.col("effect").abs() >= low, pl.col("effect").abs() < high)
    return rate(part, pl.col("word") * pl.col("effect") < 0)


def keeps_at(curve: pl.DataFrame, rival: str, seeds: float) -> float:
    """Return the share of no-ops that a fixed rule keeps at this number of seeds, interpolated."""
    part = curve.filter(pl.col("judge") == rival, pl.col("effect") == 0)
    shares = dict(part.group_by("seeds").agg((pl.col("word") > 0).mean()).iter_rows())
    known = sorted(n for n in shares if n >= LEAST.get(rival, 0))
    return float(np.interp(seeds, known, [shares[n] for n in known])) if known else np.nan


def _known(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("kind") == "change", "known", pl.col("effect").abs() >= BINS[0])


def seeds_at_equal_power(curve: pl.DataFrame, rival: str, wanted: float) -> float:
    """Return the seeds at which a fixed rule keeps this share of improvements, interpolated.

    NaN if it keeps fewer with all seeds, or is not there.
    """
    part = curve.filter(pl.col("judge") == rival, pl.col("effect") < 0)
    shares = dict(part.group_by("seeds").agg((pl.col("word") > 0).mean()).iter_rows())
    grown = np.maximum.accumulate([shares.get(n, 0.0) for n in CURVE])
    return float("nan") if wanted > grown[-1] else float(np.interp(wanted, grown, CURVE))
