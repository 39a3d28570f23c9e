"""Compute the data of each curve from a study's frames, and the ranges that points search.

    learning_curves   mean validation loss of a point's confirm runs by epoch, with its t-interval
    tuned_settings    every tuned setting: value, last validation loss, status, if it was chosen

A pruned setting counts with its last loss. A diverged setting has a row without a loss.

Points may search a field in different ranges; their common range includes all of them, and the
values that were tried: a study of an older version stores the range of one point only.
"""

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from lmzoo.lab.analysis.load import StudyFolder, chosen_runs
from lmzoo.lab.statistics.intervals import mean_interval


def learning_curves(folder: StudyFolder, metric: str = "token") -> pl.DataFrame:
    """Return label, epoch, loss, low, high, runs; low and high are null for a single run."""
    losses = epochs_of(folder, "confirm").filter(pl.col(f"valid_{metric}").is_not_null())
    rows = []
    for (label, epoch), part in losses.group_by("label", "epoch", maintain_order=True):
        interval = mean_interval(part[f"valid_{metric}"].to_numpy())
        low, high = (None if np.isnan(x) else float(x) for x in (interval.low, interval.high))
        rows.append((label, epoch, float(interval.mean), low, high, part.height))
    schema = {
        "label": pl.String, "epoch": pl.Int64, "loss": pl.Float64,
        "low": pl.Float64, "high": pl.Float64, "runs": pl.Int64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema, orient="row").sort("label", "epoch")


def tuned_settings(folder: StudyFolder, name: str, metric: str = "token") -> pl.DataFrame:
    """Return label, value, loss, epoch, status, chosen of each tune run with the field `name`."""
    points = {point["id"]: point["label"] for point in folder.study["points"]}
    chosen = {
        points[point]: facts.get("setting")
        for point, facts in folder.study.get("chosen", {}).items()
        if point in points
    }
    last = (
        epochs_of(folder, "tune")
        .sort("epoch")
        .group_by("run", "label", "setting", "status", maintain_order=True)
        .agg(pl.col(f"valid_{metric}").last().alias("loss"), pl.col("epoch").last())
    )
    rows = [
        {**row, "value": setting.get(name), "chosen": setting == chosen.get(row["label"])}
        for row in last.to_dicts()
        if is_number((setting := json.loads(row["setting"])).get(name))
    ]
    schema = {
        "label": pl.String, "value": pl.Float64, "loss": pl.Float64,
        "epoch": pl.Int64, "status": pl.String, "chosen": pl.Boolean,
    }  # fmt: skip
    return pl.DataFrame(rows, schema, strict=False).sort("label", "value")


def epochs_of(folder: StudyFolder, stage: str) -> pl.DataFrame:
    """Return the epoch events of a stage's runs, with point, label, setting and status of the run.

    A run that confirms several points (they are the same function) belongs to the point for which
    it was made. A confirm run counts only if its setting is the chosen one.
    """
    labels = [(point["id"], point["label"]) for point in folder.study["points"]]
    schema = {"point": pl.String, "label": pl.String}
    named = pl.LazyFrame(labels, schema, orient="row")
    runs = folder.runs.filter(pl.col("stage") == stage)
    if stage == "confirm":
        runs = runs.filter(pl.col("run").is_in(chosen_runs(folder.study)["run"].implode()))
    own = runs.select("run", "point", "setting", "status").join(named, on="point")
    events = folder.events.filter(pl.col("event") == "epoch").drop("status")
    return events.join(own, on="run").collect().sort("label", "run", "epoch")


Range = Mapping[str, Any]
"""`low`, `high` and `log`, or `values`, as in `study.json`."""


def search_ranges(
    study: Mapping[str, Any], settings: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Range]:
    """Return the range of each searched field, extended to the tried settings."""
    tried: dict[str, list[Any]] = {}
    for setting in settings:
        for name, value in setting.items():
            tried.setdefault(name, []).append(value)
    united = {name: reduce(_union, ranges) for name, ranges in distinct_ranges(study).items()}
    return united | {
        name: _extend(united.get(name, {"values": []}), values) for name, values in tried.items()
    }


def distinct_ranges(study: Mapping[str, Any]) -> dict[str, list[Range]]:
    """Return field -> the different ranges in which points search it."""
    own = [point["search"] for point in study["points"] if "search" in point]
    ranges: dict[str, list[Range]] = {}
    for search in own or [study["search"]]:
        for name, search_range in search.items():
            if search_range not in ranges.setdefault(name, []):
                ranges[name].append(search_range)
    return ranges


def is_number(value: Any) -> bool:
    """Return whether a value is an int or a float; a bool is not a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _union(first: Range, second: Range) -> Range:
    if "values" in first or "values" in second:
        return _extend({"values": first.get("values", ())}, second.get("values", ()))
    log = first.get("log", False) and second.get("log", False)
    return _extend({**first, "log": log}, (second["low"], second["high"]))


def _extend(search_range: Range, values: Iterable[Any]) -> Range:
    """Return the range extended to these values; other values turn numbers into a choice."""
    values = list(values)
    if "values" not in search_range and all(map(is_number, values)):
        every = [search_range["low"], search_range["high"], *values]
        kind = float if any(isinstance(value, float) for value in every) else int
        return {**search_range, "low": kind(min(every)), "high": kind(max(every))}
    every = [*search_range.get("values", ()), *values]
    return {"values": [x for i, x in enumerate(every) if x not in every[:i]]}
