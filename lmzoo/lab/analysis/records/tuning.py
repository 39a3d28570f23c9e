"""The tune runs of a study: the settings tried for each point, and their losses.

    value     lowest validation loss up to `epoch`; null for a diverged run
    centred   value − mean over the values of its point: the effect of the setting

Early stopping prunes bad settings. A comparison of final losses would leave out exactly the runs
that show the effect of a field. Therefore `epoch` is the last epoch that every run has reached
which did not diverge.

Points may search a field in different ranges. Their common range is the smallest range that
includes all of them. A study of an older version stores the range of one point only, so the tried
values extend the range as well.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import Any, NamedTuple

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.records.load import StudyFolder
from lmzoo.lab.labels import find_point


class TuneRuns(NamedTuple):
    """The tune runs of a study."""

    runs: pl.DataFrame
    """run, label, seed, status, setting (JSON), value, centred; one row per tune run."""
    fields: tuple[str, ...]
    """The fields for which every run has a value."""
    epoch: int


def read_tune_runs(
    folder: StudyFolder, epoch: int | None = None, point: str | None = None
) -> TuneRuns:
    """Return the tune runs of all points, sorted by label and run.

    Args:
        folder: the study, as `load_study` reads it.
        epoch: compare losses up to this epoch; None is the last that every run has reached.
        point: label of the only point to include; None for all points.

    Raises:
        UserError: No field was searched, the point is unknown, or a run has not reached the epoch.
    """
    labels = {p["id"]: p["label"] for p in folder.study["points"]}
    only = None if point is None else find_point(folder.study["points"], point)["id"]
    names = pl.LazyFrame({"point": list(labels), "label": list(labels.values())})
    runs = (
        folder.runs.filter(pl.col("stage") == "tune")
        .join(names, on="point")
        .filter(pl.lit(only is None) | (pl.col("point") == (only or "")))
        .sort("label", "run")
    )
    epochs = folder.events.filter(pl.col("event") == "epoch").drop_nulls("valid_token")
    reached = epochs.group_by("run").agg(last=pl.col("epoch").max())
    finite = pl.col("status").is_in(["finished", "pruned"])
    common = runs.join(reached, on="run").filter(finite).select(pl.col("last").min())
    last = common.collect().item()
    if last is None or (epoch is not None and epoch > last):
        problem = (
            "no tune run has ended yet"
            if last is None
            else f"not every tune run has a loss at epoch {epoch}; the last such epoch is {last}"
        )
        raise UserError(f"study {folder.study['name']!r}: {problem}")
    end = int(last) if epoch is None else epoch
    best = (
        epochs.filter(pl.col("epoch") <= end).group_by("run").agg(value=pl.col("valid_token").min())
    )
    frame = (
        runs.join(best, on="run", how="left", maintain_order="left")
        .with_columns(value=pl.when(finite).then("value"))
        .collect()
    )
    centred = pl.col("value") - pl.col("value").mean().over("label")
    frame = frame.select("run", "label", "seed", "status", "setting", "value", centred=centred)
    return TuneRuns(frame, _common_fields(frame), end)


def run_settings(tuning: TuneRuns) -> list[dict[str, Any]]:
    """Return the setting of each run, in the order of the frame."""
    return [json.loads(text) for text in tuning.runs["setting"]]


def variance_between_points(tuning: TuneRuns) -> float | None:
    """Return the share of the variance of the values between points; None if they do not vary."""
    known = tuning.runs.drop_nulls("value")
    total = known["value"].var(ddof=0)
    within = (known["centred"] ** 2).mean()
    if not isinstance(total, float) or not isinstance(within, float) or total <= 0:
        return None
    return 1 - within / total


def validation_curves(folder: StudyFolder) -> dict[str, dict[int, float]]:
    """Return run -> epoch -> validation loss."""
    curves: dict[str, dict[int, float]] = {}
    epochs = folder.events.filter(pl.col("event") == "epoch").drop_nulls("valid_token")
    for run, epoch, loss in epochs.select("run", "epoch", "valid_token").collect().iter_rows():
        curves.setdefault(run, {})[epoch] = loss
    return curves


def _common_fields(frame: pl.DataFrame) -> tuple[str, ...]:
    settings = [json.loads(text) for text in frame["setting"]]
    common = tuple(name for name in settings[0] if all(name in setting for setting in settings))
    if not common:
        raise UserError(
            "no field was searched for all of these points; give one point with --point LABEL"
        )
    return common


Range = Mapping[str, Any]
"""`low`, `high` and `log`, or `values`, as in `study.json`."""


def search_ranges(
    study: Mapping[str, Any],
    settings: Iterable[Mapping[str, Any]] = (),
    labels: Collection[str] | None = None,
) -> dict[str, Range]:
    """Return the range of each searched field.

    Args:
        study: the content of `study.json`.
        settings: the tried settings, each field -> value.
        labels: labels of the points to include; None for all.
    """
    tried: dict[str, list[Any]] = {}
    for setting in settings:
        for name, value in setting.items():
            tried.setdefault(name, []).append(value)
    united = {
        name: reduce(_union, ranges) for name, ranges in distinct_ranges(study, labels).items()
    }
    return united | {
        name: _extend(united.get(name, {"values": []}), values) for name, values in tried.items()
    }


def distinct_ranges(
    study: Mapping[str, Any], labels: Collection[str] | None = None
) -> dict[str, list[Range]]:
    """Return field -> the different ranges in which points search it."""
    points = [p for p in study["points"] if labels is None or p["label"] in labels]
    own = [point["search"] for point in points if "search" in point]
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
