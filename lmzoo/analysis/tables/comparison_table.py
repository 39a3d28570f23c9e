"""The comparison of a study's points with one reference as text: heading, table and legend."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.analysis.records.load import StudyFolder, load_study
from lmzoo.analysis.records.units import UNITS, TextSizes, in_unit, metric_of
from lmzoo.analysis.tables.accuracy import accuracy_lines, format_accuracy
from lmzoo.analysis.tables.comparison import compare_points
from lmzoo.analysis.text.formatting import (
    MISSING,
    format_interval,
    format_mean,
    format_number,
    format_p,
    format_probability,
    table_title,
)
from lmzoo.analysis.text.render import Report, TextTable


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
    return comparison_report(folder, in_unit(frame, unit))


def comparison_report(folder: StudyFolder, frame: pl.DataFrame) -> Report:
    """Return the report of a comparison."""
    rows = frame.to_dicts()
    reference = next(row["label"] for row in rows if row["reference"])
    columns = {
        "rank": [format_interval(row["rank_low"], row["rank_high"]) for row in rows],
        "point": [row["label"] for row in rows],
        "difference": [
            "reference" if row["reference"]
            else format_mean(row["difference"], row["difference_high"], "+.4f") for row in rows
        ],
        **_accuracies(rows),
        "p": [format_p(row["p"]) for row in rows],
        "better": [format_probability(row["better"]) for row in rows],
        "wins": [MISSING if row["reference"] else _wins(row) for row in rows],
        "from seeds": [format_number(row["from_seeds"], ".0%") for row in rows],
        "from tuning": [format_number(row["from_tuning"], ".0%") for row in rows],
    }  # fmt: skip
    cells = list(zip(*columns.values(), strict=True))
    first = rows[0]
    return Report(
        heading=(
            folder.study["question"],
            f"{folder.study['name']}: {UNITS[first['metric']]}, test at epoch "
            f"{first['epoch']}; difference: to {reference!r}, paired over seeds and test "
            "sequences, 95 % intervals; p: with Holm's correction",
        ),
        tables=(TextTable(table_title(first), tuple(columns), cells, frozenset({"point"})),),
        legend=(
            "rank: 95 % interval when seeds and test sequences are resampled",
            "better: probability that the point has the lower loss; wins: seeds for which it has "
            "the lower loss",
            "from seeds, from tuning: shares of the variance that more seeds and more tuning runs "
            "would reduce; more test sequences would reduce the rest",
            *accuracy_lines(frame),
        ),
        frame=frame,
        json_columns=frozenset({"corpus"}),
    )


def _accuracies(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the column of accuracies; {} unless the corpus is a task."""
    if all(row["accuracy"] is None for row in rows):
        return {}
    return {"accuracy": [format_accuracy(row) for row in rows]}


def _wins(row: Mapping[str, Any]) -> str:
    if not row["paired"]:
        return MISSING
    return f"{row['win_rate'] * row['paired']:g} of {row['paired']}"
