"""Compute the data of each curve from a study's frames, and the ranges that points search.

    learning_curves   mean validation loss of a point's confirm runs by epoch, with its t-interval
    tuned_settings    every tuned setting: value, last validation loss, status, if it was chosen
    point_costs       one row per point of a ranking: its loss, and what it costs
    response_curves   the fitted responses by which the settings were chosen, fitted again as the
                      sweep did (`lmzoo/lab/statistics/responses.py`)

A pruned setting counts with its last loss. A diverged setting has a row without a loss.

Points may search a field in different ranges. Their common range is the smallest range that
includes all of them. A study of an older version stores the range of one point only, so the tried
values extend the range as well.
"""

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.statistics.intervals import mean_interval
from lmzoo.lab.statistics.responses import fit_responses

COSTS = {
    "parameters": "parameters",
    "state_size": "state: numbers between two tokens",
    "flops": "compute: forward FLOPs per token",
}
"""Column of a ranking -> the cost that it is."""
LABELS = {"point": pl.String, "label": pl.String}


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


def point_costs(ranked: pl.DataFrame) -> pl.DataFrame:
    """Return the loss and the costs of the points with a loss.

    Count models, which have no parameters, are left out: at 0 they would stretch every axis.
    """
    names = ["label", "loss", "low", "high", *COSTS, "leaks"]
    trained = pl.col("parameters").is_null() | (pl.col("parameters") > 0)
    return ranked.filter(pl.col("loss").is_not_null() & trained).select(names)


def numeric_fields(folder: StudyFolder) -> dict[str, bool]:
    """Return the searched fields with a range of numbers -> whether the scale is logarithmic."""
    ranges = search_ranges(folder.study)
    return {name: bool(where.get("log")) for name, where in ranges.items() if "low" in where}


def epochs_of(folder: StudyFolder, stage: str) -> pl.DataFrame:
    """Return the epoch events of a stage's runs, with point, label, setting and status of the run.

    A run that confirms several points (they are the same function) belongs to the point for which
    it was made. A confirm run counts only if its setting is the chosen one.
    """
    labels = [(point["id"], point["label"]) for point in folder.study["points"]]
    named = pl.DataFrame(labels, LABELS, orient="row").lazy()
    runs = folder.runs.filter(pl.col("stage") == stage)
    if stage == "confirm":
        points = folder.study.get("chosen", {}).values()
        runs = runs.filter(pl.col("run").is_in([run for point in points for run in point["runs"]]))
    own = runs.select("run", "point", "setting", "status").join(named, on="point")
    events = folder.events.filter(pl.col("event") == "epoch").drop("status")
    return events.join(own, on="run").collect().sort("label", "run", "epoch")


SCHEMA = {"label": pl.String, "value": pl.Float64, "fitted": pl.Float64}


def response_curves(folder: StudyFolder, name: str) -> pl.DataFrame:
    """Return label, value, fitted: the smoothed loss of each point at each setting that it tried.

    The sweep chose by a fit that also knows losses at the rung and repeated measurements.
    The frame is empty unless `name` is the only field that was searched, and unless at least two
    points tried several settings. A setting that a point did not try has no row.
    """
    ranges = search_ranges(folder.study)
    if set(ranges) != {name} or "low" not in ranges[name]:
        return pl.DataFrame(schema=SCHEMA)
    lowest = epochs_of(folder, "tune").group_by("label", "setting", "status", maintain_order=True)
    lowest = lowest.agg(pl.col("valid_token").min())
    losses: dict[str, dict[float, float]] = {}
    for label, setting, status, loss in lowest.iter_rows():
        value = json.loads(setting).get(name)
        known = {"pruned": np.nan, "finished": loss}.get(status, np.inf)
        losses.setdefault(label, {})[value] = np.inf if known is None else known
    every = sorted({value for own in losses.values() for value in own})
    shared = {
        label: [own.get(value, np.nan) for value in every]
        for label, own in losses.items()
        if len(own) > 1 and np.isfinite(list(own.values())).any()
    }
    if len(shared) < 2 or len(every) < 3:
        return pl.DataFrame(schema=SCHEMA)
    low, high = (float(ranges[name][end]) for end in ("low", "high"))
    scale = np.log if ranges[name].get("log") else np.asarray
    low, high, places = scale(low), scale(high), scale(np.array(every))
    x = 2 * (places - low) / (high - low) - 1
    fit = fit_responses(list(shared.values()), x[:, None])
    rows = [
        (label, value, float(fitted))
        for label, means in zip(shared, fit.mean, strict=True)
        for value, fitted in zip(every, means, strict=True)
        if value in losses[label]
    ]
    return pl.DataFrame(rows, SCHEMA, orient="row").sort("label", "value")


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
    return {"values": [value for i, value in enumerate(every) if value not in every[:i]]}
