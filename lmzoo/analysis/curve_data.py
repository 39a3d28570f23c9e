"""Records -> the numbers behind each curve: pure functions from a study's frames to frames.

    learning      mean validation loss of a point's confirm runs by epoch, with its t-interval
    settings      every tuned setting: its value, its last validation loss, how it ended
    costs         a row per point of a ranking: loss, parameters, seconds of training of one run
    survival      of a point's tuned settings, the share still in training at each epoch

A setting that was pruned counts with the loss it was left with, one that diverged has none
and is counted: `settings` keeps its row, `survival` its epochs.
"""

import json
from typing import Any

import numpy as np
import polars as pl

from lmzoo.analysis.load import Folder
from lmzoo.analysis.ranking import with_status
from lmzoo.analysis.search_ranges import ranges
from lmzoo.analysis.statistics import mean_interval

LABELS = {"point": pl.String, "label": pl.String}


def learning(folder: Folder, metric: str = "token") -> pl.DataFrame:
    """Columns label, epoch, loss, low, high, runs; low and high null where one run remains."""
    losses = _epochs(folder, "confirm").filter(pl.col(f"valid_{metric}").is_not_null())
    rows = []
    for (label, epoch), part in losses.group_by("label", "epoch", maintain_order=True):
        found = mean_interval(part[f"valid_{metric}"].to_numpy())
        low, high = (None if np.isnan(x) else float(x) for x in (found.low, found.high))
        rows.append((label, epoch, float(found.mean), low, high, part.height))
    schema = {
        "label": pl.String, "epoch": pl.Int64, "loss": pl.Float64,
        "low": pl.Float64, "high": pl.Float64, "runs": pl.Int64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema, orient="row").sort("label", "epoch")


def settings(folder: Folder, name: str, metric: str = "token") -> pl.DataFrame:
    """Columns label, value, loss, epoch, status of each tune run that has the field `name`."""
    last = (
        _epochs(folder, "tune")
        .sort("epoch")
        .group_by("run", "label", "setting", "status", maintain_order=True)
        .agg(pl.col(f"valid_{metric}").last().alias("loss"), pl.col("epoch").last())
    )
    rows = [
        {**row, "value": json.loads(row["setting"]).get(name)}
        for row in last.to_dicts()
        if _is_number(json.loads(row["setting"]).get(name))
    ]
    schema = {
        "label": pl.String, "value": pl.Float64, "loss": pl.Float64,
        "epoch": pl.Int64, "status": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema, strict=False).sort("label", "value")


def costs(folder: Folder, ranked: pl.DataFrame) -> pl.DataFrame:
    """Columns label, loss, low, high, parameters, seconds, leaks of the points with a loss."""
    seconds = (
        _epochs(folder, "confirm")
        .group_by("point", "run")
        .agg(pl.col("seconds").sum())
        .group_by("point")
        .agg(pl.col("seconds").mean())
    )
    return (
        ranked.filter(pl.col("loss").is_not_null())
        .join(seconds, on="point", how="left", maintain_order="left")
        .select("label", "loss", "low", "high", "parameters", "seconds", "leaks")
    )


def survival(folder: Folder) -> pl.DataFrame:
    """Columns label, epoch, left, tuned: how many of a point's settings trained that epoch."""
    runs = _epochs(folder, "tune")
    tuned = runs.group_by("label").agg(pl.col("run").n_unique().alias("tuned"))
    return (
        runs.group_by("label", "epoch")
        .agg(pl.col("run").n_unique().alias("left"))
        .join(tuned, on="label")
        .sort("label", "epoch")
        .select("label", "epoch", "left", "tuned")
    )


def searched_numbers(folder: Folder) -> list[str]:
    """The searched fields that are a range of numbers, in the study's order."""
    return [name for name, where in ranges(folder.study).items() if "low" in where]


def is_log(folder: Folder, name: str) -> bool:
    """Whether the field is searched on a logarithmic scale."""
    return bool(ranges(folder.study)[name].get("log"))


def _epochs(folder: Folder, stage: str) -> pl.DataFrame:
    """The epoch events of a stage's runs, with what is known of the run.

    A run that confirms several points, as equal functions do, stands under the point it was
    made for; a confirm run counts only if it is of the setting chosen last.
    """
    labels = [(point["id"], point["label"]) for point in folder.study["points"]]
    named = pl.DataFrame(labels, LABELS, orient="row").lazy()
    runs = with_status(folder.runs, folder.events).filter(pl.col("stage") == stage)
    if stage == "confirm":
        chosen = [run for one in folder.study.get("chosen", {}).values() for run in one["runs"]]
        runs = runs.filter(pl.col("run").is_in(chosen))
    own = runs.select("run", "point", "setting", "status").join(named, on="point")
    events = folder.events.filter(pl.col("event") == "epoch").drop("status")
    return events.join(own, on="run").collect().sort("label", "run", "epoch")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
