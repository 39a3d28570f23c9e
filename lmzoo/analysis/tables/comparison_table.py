"""The comparison of a study's points with one reference as text: heading, table and legend."""

from pathlib import Path

import polars as pl

from lmzoo.analysis.records.load import StudyFolder, load_study
from lmzoo.analysis.records.units import UNITS, TextSizes, metric_of
from lmzoo.analysis.tables.accuracy import accuracy_lines
from lmzoo.analysis.tables.columns import (
    in_unit,
    json_columns,
    legends,
    shown_columns,
    text_table,
)
from lmzoo.analysis.tables.comparison import compare_points
from lmzoo.analysis.text.formatting import table_title
from lmzoo.analysis.text.render import Report


def study_comparison(
    path: Path,
    *,
    unit: str = "token",
    reference: str | None = None,
    measured: TextSizes | None = None,
) -> Report:
    """Return the comparison of the study in folder `path` with a reference.

    Args and errors are those of `compare_points`; `unit` is one of `UNITS` but `ppl`.
    """
    metric = metric_of(unit, linear=True)
    folder = load_study(path)
    frame = compare_points(folder, metric=metric, reference=reference, measured=measured)
    return comparison_report(folder, in_unit(frame, "comparison", unit))


def comparison_report(folder: StudyFolder, frame: pl.DataFrame) -> Report:
    """Return the report of a comparison."""
    rows = frame.to_dicts()
    reference = next(row["label"] for row in rows if row["reference"])
    columns = shown_columns("comparison", "compared")
    first = rows[0]
    table = text_table(table_title(first), rows, columns, digits=4)
    return Report(
        heading=(
            folder.study["question"],
            f"{folder.study['name']}: {UNITS[first['metric']]}, test at epoch "
            f"{first['epoch']}; difference: to {reference!r}, paired over seeds and test "
            "sequences, 95 % intervals; p: with Holm's correction",
        ),
        tables=(table,),
        legend=(
            *legends([table], columns),
            *accuracy_lines(frame),
        ),
        frame=frame,
        json_columns=json_columns("comparison"),
    )
