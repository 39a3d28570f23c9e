"""The shapes of noise of real trainings: by configuration, and as a table by family and task."""

from typing import NamedTuple

import numpy as np
import polars as pl
from scipy import stats

from benchmarks.crash_test.decisions import Pool
from benchmarks.crash_test.judges import Array
from benchmarks.crash_test.population import STREAM

NORMAL, SKEWED, MODES = "near normal", "skewed", "two modes"
SHAPES = (NORMAL, SKEWED, MODES)


class Noise(NamedTuple):
    """The noise of a configuration over its seeds."""

    variant: str
    kind: str
    seeds: int
    sd: float
    skew: float
    kurtosis: float
    """Excess; 0 for a normal distribution."""
    shape: str
    failed: int
    """Runs that diverged."""


def shape_of(losses: Array) -> str:
    """Return the shape: two modes if a gap of one standard deviation divides the middle 96 %."""
    middle = np.sort(losses)[len(losses) // 50 : len(losses) - len(losses) // 50]
    sd = losses.std(ddof=1)
    if sd <= 0:
        return NORMAL
    if np.diff(middle).max(initial=0.0) > sd:
        return MODES
    return SKEWED if abs(stats.skew(losses)) > 1 else NORMAL


def noises(pool: Pool) -> pl.DataFrame:
    """Return a row for each configuration of a study."""
    rows = []
    for name, kind in pool.kinds.items():
        x = pool.all(name)
        if len(x) < 24 or kind == "inert":
            continue
        failed = int((x >= pool.failure).sum())
        sd = float(x.std(ddof=1))
        skew, tail = (float(stats.skew(x)), float(stats.kurtosis(x))) if sd > 0 else (0.0, 0.0)
        rows.append(Noise(name, kind, len(x), sd, skew, tail, shape_of(x), failed))
    frame = pl.DataFrame(rows, schema=list(Noise._fields), orient="row")
    facts = {"study": pool.study, "family": pool.family, "task": pool.task}
    columns = [pl.lit(x).alias(n) for n, x in facts.items()]
    return frame.with_columns(*columns, pl.lit(shared_by_seeds(pool)).alias("shared"))


def shared_by_seeds(pool: Pool) -> float:
    """Return the mean correlation of the losses of base and changes on equal seeds."""
    names = [name for name, kind in pool.kinds.items() if kind in ("base", "change")]
    end = min((sum(s < STREAM for s in pool.losses[n]) for n in names), default=0)
    x = np.stack([pool.at(name, 0, end) for name in names]) if end >= 24 else np.empty((0, 0))
    x = x[~np.isnan(x).any(1)] if x.size else x
    x = x[x.std(1) > 0] if x.size else x
    if len(x) < 3:
        return float("nan")
    r = stats.spearmanr(x, axis=1).statistic
    return float(np.asarray(r)[np.triu_indices(len(x), 1)].mean())
