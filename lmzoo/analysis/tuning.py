"""The tune stage of a study: what was tried for each point, and what came of it.

    value   lowest validation loss up to epoch `at`, null where the run diverged before
    centred value less the mean of its point's values: what the setting did, not the point

ASHA stops the bad settings early, so comparing what was reached in the end would leave
out the very runs that show what a field does. `at` is therefore the last epoch that every
run reached which did not diverge.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from lmzoo.analysis.load import Folder
from lmzoo.analysis.ranking import with_status
from lmzoo.errors import UserError


class Tuning(NamedTuple):
    """The tune runs of a study."""

    runs: pl.DataFrame
    """run, label, seed, status, setting (JSON), value, centred; a row per tune run."""
    fields: tuple[str, ...]
    """The fields that every one of these runs has a value for."""
    at: int


def read_tuning(folder: Folder, at: int | None = None, point: str | None = None) -> Tuning:
    """The tune runs of all points, or of the one with this label.

    Raises:
        UserError: nothing was searched, no such point, or no run has reached the epoch.
    """
    labels = {p["id"]: p["label"] for p in folder.study["points"]}
    if point is not None and point not in labels.values():
        raise UserError(f"no point {point!r}; known: {', '.join(labels.values())}")
    names = pl.LazyFrame({"point": list(labels), "label": list(labels.values())})
    runs = (
        with_status(folder.runs, folder.events)
        .filter(pl.col("stage") == "tune")
        .join(names, on="point")
        .filter(pl.lit(point is None) | (pl.col("label") == (point or "")))
        .sort("label", "run")
    )
    epochs = folder.events.filter(pl.col("event") == "epoch").drop_nulls("valid_token")
    reached = epochs.group_by("run").agg(last=pl.col("epoch").max())
    sound = runs.join(reached, on="run").filter(pl.col("status").is_in(["finished", "pruned"]))
    common = sound.select(pl.col("last").min()).collect().item()
    if common is None or (at is not None and at > common):
        what = "has ended yet" if common is None else f"has a loss at epoch {at}; up to {common}"
        raise UserError(f"study {folder.study['name']!r}: not every tune run {what}")
    upto = int(common) if at is None else at
    best = (
        epochs.filter(pl.col("epoch") <= upto)
        .group_by("run")
        .agg(value=pl.col("valid_token").min())
    )
    sound_value = pl.when(pl.col("status").is_in(["finished", "pruned"])).then("value")
    frame = (
        runs.join(best, on="run", how="left", maintain_order="left")
        .with_columns(value=sound_value)
        .collect()
    )
    centred = pl.col("value") - pl.col("value").mean().over("label")
    frame = frame.select("run", "label", "seed", "status", "setting", "value", centred=centred)
    return Tuning(frame, _common_fields(frame), upto)


def settings(tuning: Tuning) -> list[dict[str, Any]]:
    """What each run was set to, in the order of the frame."""
    return [json.loads(text) for text in tuning.runs["setting"]]


def between_points(tuning: Tuning) -> float:
    """Share of the variance of the values that lies between points; NaN of one value."""
    known = tuning.runs.drop_nulls("value")
    total = known["value"].var(ddof=0)
    within = (known["centred"] ** 2).mean()
    if not isinstance(total, float) or not isinstance(within, float) or total <= 0:
        return float("nan")
    return 1 - within / total


def curves(folder: Folder) -> Mapping[str, dict[int, float]]:
    """Run -> epoch -> validation loss."""
    found: dict[str, dict[int, float]] = {}
    epochs = folder.events.filter(pl.col("event") == "epoch").drop_nulls("valid_token")
    for run, epoch, loss in epochs.select("run", "epoch", "valid_token").collect().iter_rows():
        found.setdefault(run, {})[epoch] = loss
    return found


def _common_fields(frame: pl.DataFrame) -> tuple[str, ...]:
    every = [json.loads(text) for text in frame["setting"]]
    common = tuple(name for name in every[0] if all(name in setting for setting in every))
    if not common:
        raise UserError("no field was searched for all of these points; --point LABEL takes one")
    return common
