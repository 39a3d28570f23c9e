"""Runs of a study that were trained in different environments, are equal, or jump together.

A ranking over mixed environments says so. A point has no verdict if none of its confirm runs shares
a value with those of the reference, such as the version of a package: the whole difference may be
that of the value. `lmzoo/base/environment.py` says which values count.

**Jumps.** What is not recorded can change between two commands, and then all points change at once.
With m_j the mean of seed j over the points, a t-test compares the seeds before and after each
border between two seeds; the smallest p, times the number of borders, is said below `TINY`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from scipy import special

from lmzoo.base.environment import Values, apart, counted
from lmzoo.lab.analysis.formatting import join_labels
from lmzoo.lab.analysis.seeds import by_seed
from lmzoo.lab.statistics.draws import equal_lines
from lmzoo.lab.statistics.intervals import Array

TINY = 1e-4


def environment_warnings(
    study: Mapping[str, Any], runs: pl.DataFrame, losses: pl.DataFrame
) -> Iterator[str]:
    """Yield what runs of different environments, and jumps, make doubtful.

    `losses` are those of the confirm runs: point, run, seed, loss.
    """
    labels = {point["id"]: point["label"] for point in study["points"]}
    own = runs.filter(pl.col("status").is_not_null() & pl.col("point").is_in([*labels]))
    groups: dict[str, Counter[str]] = {}
    every = of_points(own)
    mixed = [name for name in union(every) if len(union(every)[name]) > 1]
    for point, found in _counted(own):
        words = ", ".join(f"{name} {found[name]}" for name in mixed if name in found)
        groups.setdefault(words, Counter())[labels[point]] += 1
    order = sorted(groups, key=lambda words: groups[words].total(), reverse=True)
    for words in order[1:]:
        where = join_labels([*groups[words]])
        counts = f"{groups[words].total()} of {len(own)} runs"
        yield f"{counts} were trained with {words}, others with {order[0]}: {where}"
    confirm = of_points(runs.join(losses, on="run", how="semi"))
    reference = study.get("reference", "")
    for point, name in apart(confirm, reference).items():
        ours, theirs = (" or ".join(sorted(confirm[p][name])) for p in (point, reference))
        yield (
            f"not comparable: {labels[reference]} with {name} {theirs}, {labels[point]} with "
            f"{ours}; run the sweep with --again, which trains again what differs from now"
        )
    drawn = runs.filter(pl.col("parameters").ne_missing(0)).select("run")  # no models of counts
    own = losses.unique("run", maintain_order=True).join(drawn, on="run")
    points = own["point"].unique().sort()
    yield from equal_lines([labels.get(p, p) for p in points], by_seed(own, points))
    wide = by_seed(losses, losses["point"].unique())
    whole = np.isfinite(wide).all(0)
    border, p, size = jump(wide[:, whole].sum(0) / max(1, len(wide)))
    if p < TINY:
        yield (
            f"all points change by {size:+.3g} after the first {border} seeds (p {p:.0e}): "
            "something changed between two commands"
        )


def commits_line(runs: pl.DataFrame) -> str:
    """Return of which commits runs are, if they are mixed or had changes; else ""."""
    found = commits_of(runs)
    commits = [f"{name or 'unknown'} ({count} runs)" for name, count in found.most_common()]
    dirty = "; +: with changes that were not committed" * any("+" in name for name in found)
    is_clean = len(found) == 1 and not dirty and "" not in found
    return "" if is_clean else f"trained at {', '.join(commits)}{dirty}"


def commits_of(runs: pl.DataFrame) -> Counter[str]:
    """Return the number of runs of each commit; "" is an unknown one."""
    found = Counter[str]()
    for environment, count in begun_in(runs):
        found[environment.get("commit", "")] += count
    return found


def begun_in(runs: pl.DataFrame) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each environment in which runs began, and their number."""
    counts = runs.group_by("environment", maintain_order=True).len()
    for text, count in counts.iter_rows():
        yield json.loads(text)[0], count


def of_points(runs: pl.DataFrame) -> dict[str, Values]:
    """Return the values of each point's runs."""
    found: dict[str, Values] = {}
    for point, values in _counted(runs):
        for name, value in values.items():
            found.setdefault(point, {}).setdefault(name, set()).add(value)
    return found


def union(points: Mapping[str, Values]) -> Values:
    """Return the values of all points."""
    found: Values = {}
    for values in points.values():
        for name, own in values.items():
            found.setdefault(name, set()).update(own)
    return found


def jump(means: Array) -> tuple[int, float, float]:
    """Return after how many seeds the means (S,) jump, p, and by how much."""
    count = len(means)
    if count < 4:
        return 0, 1.0, 0.0
    before = np.arange(2, count - 1)
    after = count - before
    centred = means - means.mean()
    sums = centred.cumsum()[before - 1]
    size = -sums / after - sums / before
    # The sum of squares within both parts: that of all less that between them.
    within = (centred**2).sum() - before * after / count * size**2
    varies = (_range(means)[before - 1] > 0) & (_range(means[::-1])[after - 1] > 0)
    variance = np.maximum(within, TINY**4 * (centred**2).sum()) / (count - 2)
    scale = np.sqrt(variance * (1 / before + 1 / after))
    t = np.abs(size) / np.where(varies, scale, np.inf)
    p = np.where(varies, 2 * (count - 3) * special.stdtr(count - 2, -t), 1.0)
    best = int(p.argmin())
    if p[best] >= 1:
        return 0, 1.0, 0.0
    return int(before[best]), float(p[best]), float(size[best])


def _range(values: Array) -> Array:
    """Return the range of the first 1, 2, ... values."""
    return np.maximum.accumulate(values) - np.minimum.accumulate(values)


def _counted(runs: pl.DataFrame) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield point and what counts of the environment of each run."""
    known: dict[Any, dict[str, str]] = {}
    for point, program, text in runs.select("point", "program", "environment").iter_rows():
        if (program, text) not in known:
            start, end = json.loads(text or "[{}, {}]")
            known[program, text] = counted({**start, **end}, program=bool(program))
        yield point, known[program, text]
