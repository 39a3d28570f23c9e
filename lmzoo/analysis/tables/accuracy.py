"""Accuracy of the points of a task: over its confirm runs, beside their loss.

    accuracy            mean over seeds of the share of scored tokens that are the most probable
    accuracy_low, high  of the worst and the best seed: seeds either solve a task or do not, so an
                        interval of the mean would tell little
    sequence_accuracy   mean over seeds of the share of sequences without a wrong scored token
    ceiling             the greatest accuracy that any model can reach

All are null on a corpus whose loss counts every token.
"""

import polars as pl


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
