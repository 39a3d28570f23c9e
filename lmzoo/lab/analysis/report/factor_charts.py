"""The charts of what was varied: a heat map of a factorial, the importance of searched settings."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from polars import DataFrame, col

from lmzoo.lab.analysis.load import StudyFolder, distinct_ranges
from lmzoo.lab.analysis.report.colours import chart_of

Levels = dict[str, tuple[str, ...]]
"""Factor -> its level at each point."""
LEAST = 4
"""Runs for each number of the fit, below which no importance is shown."""


def factors_of(folder: StudyFolder, points: Sequence[str]) -> Levels:
    """Return the factors of points that are all combinations of their levels; else {}."""
    configs = folder.runs.select("point", "model", "recipe").unique("point").collect()
    fields = defaultdict(dict)
    for point, model, recipe in configs.iter_rows():
        config = {"model": json.loads(model), "recipe": json.loads(recipe)}
        for name, value in _flat("", config):
            fields[name][point] = value
    searched = distinct_ranges(folder.study)
    factors: Levels = {}
    patterns = set()
    for name, values in fields.items():
        levels = tuple(values.get(point, "no") for point in points)
        # Fields that change together are one factor.
        pattern = tuple(map(levels.index, levels))
        is_searched = name in searched or name.removeprefix("recipe.") in searched
        if any(pattern) and not is_searched and pattern not in patterns:
            factors[name] = levels
            patterns.add(pattern)
    sizes = [len(set(levels)) for levels in factors.values()]
    combinations = math.prod(sizes)
    different = len(set(zip(*factors.values(), strict=True)))
    # Where a combination lacks, means of levels would compare different points.
    if len(factors) > 1 and combinations == different == len(points):
        return factors
    return {}


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the fields of a config; each part of a list is a field of its own."""
    if isinstance(value, Mapping):
        for name, own in value.items():
            yield from _flat(f"{path}.{name}".strip("."), own)
    elif isinstance(value, list):
        for own in value:
            yield f"{path}.{own}", "yes"
    else:
        yield path, str(value)


def heat_map(factors: Levels, losses: Sequence[float], what: str) -> Any:
    """Return the mean of the points with two levels; on the diagonal, of those with one."""
    rows = []
    for name, levels in factors.items():
        for point, level in enumerate(levels):
            across = f"{name.rpartition('.')[2]}={level}"
            rows.append({"point": point, "across": across, "loss": losses[point]})
    each = DataFrame(rows)
    down = each.select("point", down="across")
    pairs = each.join(down, on="point").group_by("across", "down")
    means = pairs.agg(pl.mean("loss"), points=pl.len())
    notes = [f"mean {what} of the points with both levels", "a darker field has a higher number"]
    # Paler and darker tones of one colour: a grey print has them, too.
    rows = means.sort("across", "down").to_dicts()
    return chart_of("factors", "factors", notes, rows=rows)


def importances(tuned: DataFrame, fields: Sequence[str]) -> dict[str, float]:
    """Return field -> the share of the variance of ranks that only this field explains.

    The ranks are those of the finished tuning runs of a point by their validation loss, so that no
    diverging run weighs more than another. A parabola in the rank of each field explains them. {}
    means that fewer than two fields vary, or too few runs.
    """
    ended = tuned.filter(status="finished").drop_nulls("loss")
    # Of ranks: one run that blew up would decide a fit of the losses themselves.
    share = col("loss", *fields).rank() / pl.len()
    # A setting without a value, such as no clipping, has a rank of its own.
    rank = share.fill_null(0.0) - 0.5
    ranks = ended.with_columns(rank.over("label"))
    varied = [name for name in fields if ranks[name].n_unique() > 1]
    if len(varied) < 2 or len(ranks) < LEAST * (2 * len(varied) + 1):
        return {}
    whole = _unexplained(ranks, [])
    rest = _unexplained(ranks, varied)
    shares = {}
    for name in varied:
        others = [own for own in varied if own != name]
        shares[name] = (_unexplained(ranks, others) - rest) / whole
    return shares


def _unexplained(ranks: DataFrame, names: Sequence[str]) -> float:
    """Return the sum of squares that parabolas in these fields leave of the ranks of losses."""
    loss = ranks["loss"].to_numpy()
    columns = [np.ones(len(ranks))]
    for name in names:
        own = ranks[name].to_numpy()
        columns += [own, own**2]
    design = np.stack(columns, 1)
    weights = np.linalg.lstsq(design, loss)[0]
    rest = loss - design @ weights
    return float((rest**2).sum())


def importance_chart(shares: Mapping[str, float], runs: int) -> Any:
    """Return the share of each field as a bar."""
    rows = [{"field": name, "share": share} for name, share in shares.items()]
    notes = [
        "the share that a parabola in this setting alone explains",
        f"{runs} finished tuning runs, ranked by their loss within each point",
    ]
    return chart_of("importance", "importance of settings", notes, rows=rows)
