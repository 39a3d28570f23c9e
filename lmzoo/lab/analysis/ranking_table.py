"""The ranking of a study as text: heading, tables and legend.

Each group of comparable points has two tables: the results, and how each setting was found, where
a column with equal cells is a part of the title. A missing number is "—", never 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.baseline_comparison import baseline_lines
from lmzoo.lab.analysis.columns import (
    Column,
    in_unit,
    json_columns,
    legends,
    maximized,
    shown_columns,
    text_table,
)
from lmzoo.lab.analysis.curve_data import distinct_ranges
from lmzoo.lab.analysis.formatting import format_value, join_labels, table_title
from lmzoo.lab.analysis.load import StudyFolder, load_study
from lmzoo.lab.analysis.ranking import TABLE_KEYS, accuracy_lines, rank_points
from lmzoo.lab.analysis.render import KEYS, Report, TextTable
from lmzoo.lab.analysis.units import METRIC, SIZE_OF, UNITS, metric_of, size_line
from lmzoo.lab.analysis.verdict_lines import (
    data_warnings,
    impossible_warnings,
    verdict_lines,
    words,
)

MARKS = {
    "impossible": "the loss is below the entropy of the source by more than the test split "
    "explains: the model sees what it predicts, or its probabilities do not sum to one; see "
    "`lmzoo audit`",
    "edge": "the chosen value is the first or last one tried; try more settings (--samples), or a "
    "wider range where it is at a bound",
    "missing": "number of confirm runs without a loss yet; run the sweep again",
    "unconfirmed": "no setting is chosen yet, or every setting diverged or failed",
    "untuned": "another architecture than the reference's, and one setting for both: no verdict, "
    "because a setting can suit one of them; search the learning rate",
    "noisy": "the losses vary much more between seeds than those of other points; this variance "
    "is not shared. A noisy reference makes all differences uncertain: it needs seeds first",
    "shared": "its few seeds alone do not show the verdict, which assumes that they vary as those "
    "of the other points do",
    "reported": "the loss is what the user's program reports; it is not audited",
    "fixed": "every seed gives the same loss, so the difference of two such points has no p; its "
    "interval, if any, covers the choice of the setting",
}


def study_ranking(
    path: Path | StudyFolder,
    *,
    unit: str = "token",
    at: int | None = None,
    margin: float | None = None,
) -> Report:
    """Return the ranking of the study in folder `path`; a `UserError` if nothing can be ranked."""
    if margin is not None and not 0 < margin < float("inf"):
        raise UserError(f"margin {margin} is not a positive number of nats; give one, as 0.02")
    metric = metric_of(unit)
    if at is not None and unit in SIZE_OF:
        raise UserError(f"--at ranks validation losses, which have no {unit}; use --unit token")
    folder = path if isinstance(path, StudyFolder) else load_study(path)
    study = folder.study if margin is None else {**folder.study, "margin": margin}
    frame = rank_points(folder.runs, folder.events, study, metric=metric, at=at)
    if (frame["score"] == METRIC).all():
        if unit != "token":
            raise UserError(f"--unit {unit}: the study ranks a metric of its own; leave it out")
        return ranking_report(folder, frame)
    return ranking_report(folder, in_unit(frame, "ranking", unit))


def ranking_report(folder: StudyFolder, frame: pl.DataFrame) -> Report:
    """Return the report of a study's ranking, from a table of losses."""
    shown = as_metric(folder.study, frame)
    tables = [
        table
        for part in shown.partition_by(TABLE_KEYS, maintain_order=True)
        for table in (_results(part), provenance_table(part))
    ]
    return Report(
        heading=_heading(folder, frame, tables),
        tables=tuple(tables),
        legend=_legend(folder, frame),
        frame=shown,
        json_columns=json_columns("ranking"),
    )


def as_metric(study: Mapping[str, Any], frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table of losses as one of the study's metric, or such a one as one of losses."""
    is_maximized = study.get("asked", {}).get("direction") == "maximize"
    return maximized(frame, "ranking") if is_maximized else frame


def split_words(study: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Return where the losses of a row are from: "test at epoch 3"."""
    is_choice = row["score"] == METRIC and row["split"] != "test" and study["budget"]["samples"] > 1
    also = " (also used to choose the setting)" if is_choice else ""
    return f"{row['split']}{also} at epoch {row['epoch']}"


def result_columns(part: pl.DataFrame, table: str) -> list[Column]:
    """Return the columns of a text table of results; a metric of the user has its own heading."""
    columns = shown_columns("ranking", table)
    if part["score"].item(0) != METRIC:
        return columns
    name = part["metric"].item(0)
    return [replace(c, heading=name) if c.name == "loss" else c for c in columns]


def _results(part: pl.DataFrame) -> TextTable:
    title = table_title(part.row(0, named=True))
    return text_table(title, part.to_dicts(), result_columns(part, "results"), _digits(part))


def _heading(
    folder: StudyFolder, frame: pl.DataFrame, tables: Sequence[TextTable]
) -> tuple[str, ...]:
    study, row = folder.study, frame.row(0, named=True)
    budget = study["budget"]
    search_space = "; ".join(
        f"{name} {' or '.join(map(_range, ranges))}"
        for name, ranges in distinct_ranges(study).items()
    )
    labels = {point["id"]: point["label"] for point in study["points"]}
    reference = labels.get(study.get("reference"), "no point")
    return (
        study["question"],
        *verdict_lines(frame),
        *data_warnings(study, folder.damaged),
        *impossible_warnings(frame),
        f"{study['name']}: {UNITS.get(row['metric'], row['metric'])}, {split_words(study, row)}; "
        f"means over seeds, 95 % intervals; points share what is "
        "known of the spread between seeds, as far as they are alike",
        f"budget per point: {budget['samples']} settings, {budget['seeds']} seeds, "
        f"{budget['epochs']} epochs; search space: {search_space or 'none'}",
        *legends(
            tables,
            shown_columns("ranking", "results"),
            reference=repr(reference),
            words=words(frame),
        ),
        _run_counts(folder),
    )


def _run_counts(folder: StudyFolder) -> str:
    statuses = folder.runs.select("status").collect()["status"]
    names = ("finished", "pruned", "diverged", "failed")
    counts = ", ".join(f"{(statuses == name).sum()} {name}" for name in names)
    return f"runs: {len(statuses)}, of which {counts}, {statuses.null_count()} not ended"


def _legend(folder: StudyFolder, frame: pl.DataFrame) -> tuple[str, ...]:
    shown = set(frame["marks"].explode().drop_nulls())
    lines = [f"{mark}: {text}" for mark, text in MARKS.items() if mark in shown]
    lines += baseline_lines(frame)
    lines += accuracy_lines(frame)
    lines += filter(None, map(size_line, frame.partition_by("fingerprint", maintain_order=True)))
    leaking = frame.filter(pl.col("leaks") != "")
    for reason, labels in leaking.group_by("leaks", maintain_order=True).agg("label").iter_rows():
        lines.append(f"leaks: not a language model's loss; {join_labels(labels)}: {reason}")
    for row in frame.filter(pl.col("aliases").list.len() > 0).to_dicts():
        lines.append("the same function: " + " ≡ ".join([row["label"], *row["aliases"]]))
    with_runs = set(frame["point"])
    absent = [p["label"] for p in folder.study["points"] if p["id"] not in with_runs]
    if absent:
        lines.append(f"no run yet: {join_labels(absent)}")
    return tuple(lines)


def _digits(part: pl.DataFrame) -> int:
    """Return 3 decimals, or 4 if an interval is too narrow for three."""
    halves = [*(part["high"] - part["loss"]), *(part["difference_high"] - part["difference"])]
    return 4 if any(half is not None and 0 < half < 0.001 for half in halves) else 3


def _range(search_range: Mapping[str, Any]) -> str:
    if "values" in search_range:
        return " or ".join(map(format_value, search_range["values"]))
    scale = " log" if search_range.get("log") else ""
    return f"{format_value(search_range['low'])} to {format_value(search_range['high'])}{scale}"


TITLE = "how each setting was found"
FEWEST = 3
"""Rows of a table whose equal columns become a part of the title."""


def provenance_table(part: pl.DataFrame) -> TextTable:
    """Return the parameters, the runs and the chosen setting of each point of one table."""
    table = text_table(TITLE, part.to_dicts(), shown_columns("ranking", "provenance"))
    equal = {}
    for name, *own in zip(table.header, *table.rows, strict=True):
        if name not in KEYS and set(own) <= {"0"}:
            table = table.without(name)
        elif name not in KEYS and len(own) >= FEWEST and len(set(own)) == 1:
            table, equal[name] = table.without(name), own[0]
    shared = ", ".join(f"{name} {cell}" for name, cell in equal.items())
    return replace(table, title=f"{TITLE}; at every point: {shared}") if equal else table
