"""Accuracy of the points of a task: over its confirm runs, beside their loss.

    accuracy            mean over seeds of the share of scored tokens that are the most probable
    accuracy_low, high  of the worst and the best seed: seeds either solve a task or do not, so an
                        interval of the mean would tell little
    sequence_accuracy   mean over seeds of the share of sequences without a wrong scored token
    ceiling             the greatest accuracy that any model can reach

All are null on a corpus whose loss counts every token.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from lmzoo.analysis.text.formatting import MISSING

ACCURACY_COLUMNS = (
    *("accuracy", "accuracy_low", "accuracy_high"),
    *("sequence_accuracy", "ceiling"),
)


def point_accuracies(
    confirm: pl.DataFrame, events: pl.LazyFrame, at: int | None, epoch: int
) -> pl.DataFrame:
    """Return one row (point, accuracies) for each point with an accuracy.

    Args:
        confirm: the confirm runs (point, run, ceiling).
        events: the events of the runs.
        at: the accuracies are those of validation, if this is given.
        epoch: the epoch of the accuracies.
    """
    event, prefix = ("test", "") if at is None else ("epoch", "valid_")
    shares = {name: f"{prefix}{name}" for name in ("accuracy", "sequence_accuracy")}
    measured = events.filter((pl.col("event") == event) & (pl.col("epoch") == epoch))
    runs = confirm.lazy().select("point", "run", "ceiling")
    known = runs.join(measured.select("run", **shares), on="run").drop_nulls("accuracy")
    return (
        known.group_by("point")
        .agg(
            # Rounded, because sums of parts have no order.
            pl.col("accuracy").mean().round(9),
            accuracy_low=pl.col("accuracy").min(),
            accuracy_high=pl.col("accuracy").max(),
            sequence_accuracy=pl.col("sequence_accuracy").mean().round(9),
            ceiling=pl.col("ceiling").max(),
        )
        .collect()
    )


def accuracy_lines(table: pl.DataFrame) -> list[str]:
    """Return what the accuracies of a ranking are, in one line; [] without any."""
    ceilings = table.drop_nulls("accuracy")["ceiling"].drop_nulls().unique().sort()
    if not table["accuracy"].count():
        return []
    best = " and ".join(f"{ceiling:.1%}" for ceiling in ceilings)
    known = f"; no model can exceed {best}" if best else ""
    return [
        "accuracy: share of scored tokens that the model holds most probable, mean over seeds "
        f"(worst to best seed){known}"
    ]


def format_accuracy(row: Mapping[str, Any]) -> str:
    """Return "mean (worst–best)" in percent; one number if all seeds agree to the digits shown."""
    if row["accuracy"] is None:
        return MISSING
    mean, low, high = (
        f"{100 * row[name]:.1f}" for name in ("accuracy", "accuracy_low", "accuracy_high")
    )
    return f"{mean} %" if low == high else f"{mean} % ({low}–{high})"
