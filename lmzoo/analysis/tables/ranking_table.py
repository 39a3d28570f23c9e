"""The ranking of a study as text: heading, tables and legend.

Each group of comparable points has two tables: the results, and how each setting was found. A
missing number is "—", never 0. A column without any content is left out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.analysis.records.load import StudyFolder, load_study
from lmzoo.analysis.records.search_ranges import distinct_ranges
from lmzoo.analysis.records.units import (
    PERPLEXITIES,
    SIZE_OF,
    UNITS,
    TextSizes,
    in_unit,
    metric_of,
    size_line,
)
from lmzoo.analysis.tables.accuracy import accuracy_lines, format_accuracy
from lmzoo.analysis.tables.baseline_comparison import baseline_lines
from lmzoo.analysis.tables.provenance_table import provenance_table
from lmzoo.analysis.tables.ranking import TABLE_KEYS, rank_points, with_status
from lmzoo.analysis.text.formatting import (
    MISSING,
    format_interval,
    format_mean,
    format_number,
    format_p,
    format_perplexity,
    format_probability,
    format_value,
    status_counts,
    table_title,
)
from lmzoo.analysis.text.render import Report, TextTable
from lmzoo.analysis.text.verdict_lines import verdict_lines
from lmzoo.errors import UserError

TEXT_COLUMNS = frozenset({"point", "verdict", "marks"})
OPTIONAL = ("ppl", "better", "above floor", "p")
"""Columns that a narrow terminal leaves out, the first one first; CSV and JSON have them."""
MARKS = {
    "edge": "the chosen value is at the edge of its search range; search a wider range",
    "diverged": "number of diverged confirm runs; the mean is over the others, and the point ranks "
    "below all points without a diverged run",
    "missing": "number of confirm runs without a loss yet; run the sweep again",
    "unconfirmed": "no setting is chosen yet, or every setting diverged or failed",
    "fixed": "every seed gives the same loss, so the difference of two such points has no p; its "
    "interval, if any, covers the choice of the setting",
}


def study_ranking(
    path: Path,
    *,
    unit: str = "token",
    at: int | None = None,
    margin: float | None = None,
    measured: TextSizes | None = None,
) -> Report:
    """Return the ranking of the study in folder `path`.

    Args:
        path: the study's folder, or its address in a bucket.
        unit: one of `UNITS`.
        at: rank by the validation loss at this epoch instead of the test loss.
        margin: difference in nats within which points are equivalent; None: the study's.
        measured: sizes of the test text of corpora; they replace those of the records.

    Raises:
        UserError: Nothing can be ranked, or a name is unknown.
    """
    if margin is not None and not 0 < margin < float("inf"):
        raise UserError(f"margin {margin} is not a positive number of nats; give one, as 0.02")
    metric = metric_of(unit)
    if at is not None and unit in SIZE_OF:
        raise UserError(f"--at ranks validation losses, which have no {unit}; use --unit token")
    folder = load_study(path)
    study = folder.study if margin is None else {**folder.study, "margin": margin}
    frame = rank_points(folder.runs, folder.events, study, metric=metric, at=at, measured=measured)
    return ranking_report(folder, in_unit(frame, unit))


def ranking_report(folder: StudyFolder, frame: pl.DataFrame) -> Report:
    """Return the report of a study's ranking."""
    return Report(
        heading=_heading(folder, frame),
        tables=tuple(
            table
            for part in frame.partition_by(TABLE_KEYS, maintain_order=True)
            for table in (_results(part), provenance_table(part))
        ),
        legend=_legend(folder, frame),
        frame=frame,
        json_columns=frozenset({"setting", "corpus"}),
    )


def _results(part: pl.DataFrame) -> TextTable:
    digits, rows = _digits(part), part.to_dicts()
    columns = {
        "rank": [_rank(row) for row in rows],
        "point": [row["label"] + " ≡" * bool(row["aliases"]) for row in rows],
        "verdict": [_verdict(row) for row in rows],
        "loss": [format_mean(row["loss"], row["high"], f".{digits}f") for row in rows],
        "accuracy": [format_accuracy(row) for row in rows],
        "difference": [_difference(row, digits) for row in rows],
        "p": [format_p(row["p"]) for row in rows],
        "better": [format_probability(row["better"]) for row in rows],
        "ppl": [_perplexity(row) for row in rows],
        "above floor": [format_number(row["gap"], f".{digits}f") for row in rows],
        "marks": [", ".join(_mark(row, m) for m in row["marks"]) for row in rows],
    }
    kept = {name: cells for name, cells in columns.items() if not set(cells) <= {MISSING, ""}}
    cells = list(zip(*kept.values(), strict=True))
    return TextTable(
        table_title(part.row(0, named=True)), tuple(kept), cells, TEXT_COLUMNS, OPTIONAL
    )


def _heading(folder: StudyFolder, frame: pl.DataFrame) -> tuple[str, ...]:
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
        f"{study['name']}: {UNITS[row['metric']]}, {row['split']} at epoch "
        f"{row['epoch']}; means over seeds, 95 % intervals; points with a similar spread "
        "between seeds share one estimate of it",
        f"budget per point: {budget['samples']} settings, {budget['seeds']} seeds, "
        f"{budget['epochs']} epochs; search space: {search_space or 'none'}",
        f"difference: to {reference!r}, paired by seed; its interval covers the seeds and the "
        "choice of the setting",
        "p: moderated t-test with Holm's correction over the points without baselines and leaking "
        "rows; the verdict follows p, so an undecided point's own interval may exclude 0",
        "better: probability that the mean loss is below the reference's, not corrected for the "
        "number of points; ppl: perplexity" + _floor_words(frame),
        _run_counts(folder),
    )


def _floor_words(frame: pl.DataFrame) -> str:
    known = frame["floor"].drop_nulls().len()
    return "; floor: entropy of the source, which no model's expected loss is below" * bool(known)


def _run_counts(folder: StudyFolder) -> str:
    statuses = with_status(folder.runs, folder.events).select("status").collect()["status"]
    return (
        f"runs: {len(statuses)}, of which {status_counts(statuses)}, "
        f"{statuses.null_count()} not ended"
    )


def _legend(folder: StudyFolder, frame: pl.DataFrame) -> tuple[str, ...]:
    shown = set(frame["marks"].explode().drop_nulls())
    lines = [f"{mark}: {text}" for mark, text in MARKS.items() if mark in shown]
    lines += baseline_lines(frame)
    lines += accuracy_lines(frame)
    lines += filter(None, map(size_line, frame.partition_by("fingerprint", maintain_order=True)))
    leaking = frame.filter(pl.col("leaks") != "")
    for reason, labels in leaking.group_by("leaks", maintain_order=True).agg("label").iter_rows():
        lines.append(f"leaks: not a language model's loss; {', '.join(labels)}: {reason}")
    for row in frame.filter(pl.col("aliases").list.len() > 0).to_dicts():
        lines.append("the same function: " + " ≡ ".join([row["label"], *row["aliases"]]))
    with_runs = set(frame["point"])
    absent = [p["label"] for p in folder.study["points"] if p["id"] not in with_runs]
    if absent:
        lines.append(f"no run yet: {', '.join(absent)}")
    if folder.ignored:
        lines.append(f"ignored: folders without a config: {folder.ignored}")
    if folder.damaged:
        lines.append(f"ignored: damaged lines of records: {folder.damaged}")
    return tuple(lines)


def _perplexity(row: Mapping[str, Any]) -> str:
    return "" if row["metric"] in PERPLEXITIES else format_perplexity(row["perplexity"])


def _verdict(row: Mapping[str, Any]) -> str:
    if row["verdict"] is None:
        return ""
    if row["seeds_needed"] is not None:
        return f"{row['verdict']} (+{row['seeds_needed']} seeds)"
    return f"{row['verdict']} (more tuning)" if row["needs_tuning"] else row["verdict"]


def _mark(row: Mapping[str, Any], mark: str) -> str:
    count = {"diverged": row["confirm_diverged"], "missing": row["missing"]}.get(mark)
    return mark if count is None else f"{mark} {count}/{row['confirm']}"


def _rank(row: Mapping[str, Any]) -> str:
    if row["rank"] is None:
        return MISSING
    return f"{row['rank']} ({format_interval(row['rank_low'], row['rank_high'])})"


def _digits(part: pl.DataFrame) -> int:
    """Return 3 decimals, or 4 if an interval is too narrow for three."""
    halves = [*(part["high"] - part["loss"]), *(part["difference_high"] - part["difference"])]
    return 4 if any(half is not None and 0 < half < 0.001 for half in halves) else 3


def _difference(row: Mapping[str, Any], digits: int) -> str:
    if row["reference"]:
        return "reference"
    return format_mean(row["difference"], row["difference_high"], f"+.{digits}f")


def _range(search_range: Mapping[str, Any]) -> str:
    if "values" in search_range:
        return " or ".join(map(format_value, search_range["values"]))
    scale = " log" if search_range.get("log") else ""
    return f"{format_value(search_range['low'])} to {format_value(search_range['high'])}{scale}"
