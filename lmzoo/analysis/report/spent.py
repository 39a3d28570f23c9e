"""What a study has spent: runs, epochs, training time and devices of each stage."""

import polars as pl

from lmzoo.analysis.formatting import format_duration
from lmzoo.analysis.load import StudyFolder
from lmzoo.analysis.ranking import with_status
from lmzoo.analysis.render import TextTable


def spent_table(folder: StudyFolder) -> TextTable:
    """Return runs, pruned runs, epochs, training time and devices of each stage.

    Runs of an older version have no device. Times are those of the runs' own clocks: runs of a
    pack share an epoch's time.
    """
    runs = with_status(folder.runs, folder.events)
    epochs = folder.events.filter(pl.col("event") == "epoch").group_by("run")
    trained = epochs.agg(
        epochs=pl.len(), seconds=pl.col("seconds").sum(), device=pl.col("device").last()
    )
    stages = (
        runs.join(trained, on="run", how="left")
        .group_by("stage")
        .agg(
            runs=pl.len(),
            pruned=(pl.col("status") == "pruned").sum(),
            epochs=pl.col("epochs").sum(),
            seconds=pl.col("seconds").sum(),
            device=pl.col("device").fill_null("not recorded").unique().sort().str.join(", "),
        )
        .sort("stage", descending=True)
        .collect()
    )
    rows = [
        (row["stage"], f"{row['runs']:,}", f"{row['pruned']:,}", f"{row['epochs']:,}",
         format_duration(row["seconds"]), row["device"])
        for row in stages.to_dicts()
    ]  # fmt: skip
    if len(rows) > 1:
        frame = stages.select(pl.col("runs", "pruned", "epochs", "seconds").sum())
        runs_, pruned, epochs_, seconds = frame.row(0)
        total = (f"{runs_:,}", f"{pruned:,}", f"{epochs_:,}", format_duration(seconds))
        rows.append(("all", *total, ""))
    header = ("stage", "runs", "pruned", "epochs", "training time, summed", "device")
    return TextTable("what was spent", header, rows, frozenset({"stage", "device"}))
