"""The report of a study's ranking: its answer, its caveats, its tables, its account.

Each group of comparable points has two tables: the results, and how each setting was found, where
a column with equal cells is a part of the title. A missing number is "—", never 0.

The short form fits 80 x 24: what is doubtful, the answer, the points, the next command.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from polars import DataFrame, col

from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, Texts
from lmzoo.lab.analysis.after_training import add_after_training
from lmzoo.lab.analysis.caveats import MARKS, caveats, leaks_of, next_command, shown_address
from lmzoo.lab.analysis.columns import (
    Column,
    in_unit,
    json_columns,
    legends,
    shown_columns,
    text_table,
    with_heading,
)
from lmzoo.lab.analysis.formatting import (
    METRIC,
    UNITS,
    digits_of,
    format_number,
    format_value,
    join_labels,
    labels_of,
    metric_of,
    positive_halves,
    size_line,
    table_title,
)
from lmzoo.lab.analysis.load import StudyFolder, distinct_ranges, load_study
from lmzoo.lab.analysis.ranking import (
    TABLE_KEYS,
    accuracy_lines,
    baselines,
    rank_points,
)
from lmzoo.lab.analysis.render import FORMS, Report, TextTable, filled
from lmzoo.lab.analysis.verdict_lines import answer, meanings, verdict_lines
from lmzoo.lab.store.labels import SCORE_KINDS
from lmzoo.lab.store.records import STATUSES


def study_ranking(
    path: Path | StudyFolder,
    *,
    unit: str = "token",
    margin: float | None = None,
    after_training: bool = False,
) -> Report:
    """Return the ranking of the study in folder `path`; a `UserError` if nothing can be ranked."""
    metric = metric_of(unit)
    if margin is not None and not 0 < margin < inf:
        raise UserError(f"margin {margin} is not a positive number of nats; give one, as 0.02")
    if isinstance(path, StudyFolder):
        folder = path
    else:
        folder = load_study(path)
    # The margin of the command counts before that of the study.
    if margin is not None:
        study = folder.study | {"margin": margin}
        folder = folder._replace(study=study)
    frame = rank_points(folder.runs, folder.events, folder.study, metric=metric)
    if after_training:
        frame = add_after_training(frame, folder)
    # A metric of the user has no nats that could become bits.
    if not (frame["score"] == METRIC).all():
        frame = in_unit(frame, unit)
    elif unit != "token":
        raise UserError(f"--unit {unit}: the study ranks a metric of its own; leave it out")
    return ranking_report(folder, frame)


def ranking_report(folder: StudyFolder, frame: DataFrame) -> Report:
    """Return all that a ranking says, made once, from a table of its points."""
    tables = []
    # Other kinds of scores, and losses of other data, are ranked apart.
    for part in frame.partition_by(TABLE_KEYS, maintain_order=True):
        tables += [_results(part), provenance_table(part)]
    found = caveats(folder, frame)
    aim, command = next_command(folder, frame, found)
    report = Report(
        heading=tuple(_heading(folder, frame, tables)),
        tables=tuple(tables),
        legend=_legend(frame),
        frame=frame,
        json_columns=json_columns(),
        question=folder.study["question"],
        answer=answer(frame),
        warnings=tuple(caveat.text for caveat in found),
        grave=sum(caveat.is_grave for caveat in found),
        # A table in a paper has no other text that says what ± is.
        caption=_caption(folder, frame),
        account=account_of(folder),
        aim=aim,
        next_command=command,
        says_version=True,
    )
    # A short form is made of the whole one, so both have one answer and one next command.
    return replace(report, brief=_brief(report, folder))


def split_words(study: Fields, row: Fields) -> str:
    """Return where the losses of a row are from: "test at epoch 3"."""
    split = row["split"]
    chose = row["score"] == METRIC and split != "test"
    if chose and study["budget"]["samples"] > 1:
        # The best of several values looks better than it is where it was chosen.
        split += " (also used to choose the setting)"
    return f"{split} at epoch {row['epoch']}"


def unit_words(row: Fields) -> str:
    """Return the unit of the losses of a row."""
    metric: str = row["metric"]
    return UNITS.get(metric, metric)


def result_columns(part: DataFrame, table: str) -> list[Column]:
    """Return the columns of a text table of results; a metric of the user has its own heading."""
    columns = shown_columns(table)
    if part["score"].item(0) == METRIC:
        return with_heading(columns, "loss", part["metric"].item(0))
    return columns


def _results(part: DataFrame) -> TextTable:
    rows = part.to_dicts()
    columns = result_columns(part, "results")
    return text_table(table_title(rows[0]), rows, columns, _digits(part))


def _heading(folder: StudyFolder, frame: DataFrame, tables: Sequence[TextTable]) -> Iterator[str]:
    study = folder.study
    row = frame.row(0, named=True)
    budget = study["budget"]
    ranges = [
        f"{name} {' or '.join(map(_range, own))}" for name, own in distinct_ranges(study).items()
    ]
    search_space = "; ".join(ranges)
    labels = labels_of(study)
    reference = labels.get(study.get("reference", ""), "no point")
    yield from verdict_lines(frame)
    yield (
        f"{study['name']}: {unit_words(row)}, {split_words(study, row)}; means over seeds, 95 % "
        "intervals; points whose seeds vary alike share one estimate of that variance"
    )
    yield (
        f"budget per point: {budget['samples']} settings, {budget['seeds']} seeds, "
        f"{budget['epochs']} epochs; search space: {search_space or 'none'}"
    )
    columns = shown_columns("results")
    words = "; ".join(meanings(frame))
    yield from legends(tables, columns, reference=repr(reference), words=words)


def _caption(folder: StudyFolder, frame: DataFrame) -> str:
    """Return what the numbers of a table or a figure are, for a reader who has only that."""
    study = folder.study
    row = frame.row(0, named=True)
    is_baseline = col("point").is_in(baselines(study))
    # A baseline without randomness has one run, which is not the number of seeds.
    trained = frame.filter(~is_baseline, col("runs") > 0)
    return filled(
        FORMS / "caption.txt",
        unit=unit_words(row),
        split=split_words(study, row),
        fewest=trained["runs"].min(),
        most=trained["runs"].max(),
        fields=" and ".join(distinct_ranges(study)),
        tried=study["budget"]["samples"],
    )


def account_of(folder: StudyFolder) -> dict[str, int]:
    """Return the number of runs, and of those with each status."""
    runs = folder.runs.collect()
    counts = dict(runs["status"].value_counts().rows())
    account = {"runs": len(runs)}
    for name in STATUSES:
        account[name] = counts.get(name, 0)
    account["not ended"] = counts.get(None, 0)
    return account


def _legend(frame: DataFrame) -> Texts:
    shown = set(frame["marks"].explode())
    lines = [f"{mark}: {text}" for mark, text in MARKS.items() if mark in shown]
    lines += accuracy_lines(frame)
    # A nat per token is another number of bits in each text.
    for text in frame.partition_by("fingerprint", maintain_order=True):
        lines.append(size_line(text))
    for reason, labels in leaks_of(frame):
        lines.append(f"leaks: not a language model's loss; {join_labels(labels)}: {reason}")
    for row in frame.to_dicts():
        if row["aliases"]:
            names = [row["label"]] + row["aliases"]
            lines.append(f"the same function: {' ≡ '.join(names)}")
    return tuple(filter(None, lines))


def _digits(part: DataFrame) -> str:
    """Return 3 decimals, or 4 if an interval is too narrow for three; more if all are."""
    known = positive_halves(part, "loss")
    values = part["loss"].drop_nulls()
    if part["score"].item(0) == METRIC and len(values):
        largest = max(map(abs, values))
        # One seed has no interval: four digits of the values.
        typical = 0.01 * largest or 1.0
        least = min(known, default=typical)
        return digits_of(least, values, 0)
    if known and max(known) < 0.001:
        return digits_of(max(known), values, 4)
    if known and min(known) < 0.001:
        return "4f"
    return "3f"


def _range(search_range: Fields) -> str:
    if "values" in search_range:
        values = map(format_value, search_range["values"])
        return " or ".join(values)
    low = format_value(search_range["low"])
    high = format_value(search_range["high"])
    ends = f"{low} to {high}"
    if search_range.get("log"):
        return f"{ends} log"
    return ends


KEYS = ("rank", "point", "parameters")
"""Columns that stay, also where all their cells are equal."""
TITLE = "how each setting was found"
FEWEST = 3
"""Rows of a table whose equal columns become a part of the title."""


def provenance_table(part: DataFrame) -> TextTable:
    """Return the parameters, the runs and the chosen setting of each point of one table."""
    table = text_table(TITLE, part.to_dicts(), shown_columns("provenance"))
    equal = []
    rows = table.rows
    for place, name in enumerate(table.header):
        if name in KEYS:
            continue
        cells = [row[place] for row in rows]
        values = set(cells)
        if values <= {"0"}:
            table = table.without(name)
        elif len(cells) >= FEWEST and len(values) == 1:
            table = table.without(name)
            equal.append(f"{name} {cells[0]}")
    if not equal:
        return table
    return replace(table, title=f"{TITLE}; at every point: {', '.join(equal)}")


WIDTH = 80
"""Columns of a terminal in which the short form is printed."""


def _brief(report: Report, folder: StudyFolder) -> Report:
    """Return the short form of a ranking's report."""
    frame = report.frame
    is_baseline = col("point").is_in(baselines(folder.study))
    points = frame.filter(~is_baseline)
    parts = points.partition_by(TABLE_KEYS, maintain_order=True)
    tables = []
    for part in parts:
        title = ""
        if len(parts) > 1:
            title = SCORE_KINDS.get(part["score"].item(0), "")
        columns = result_columns(part, "brief")
        rows = part.to_dicts()
        tables.append(text_table(title, rows, columns, _digits(part)))
    # Baselines are a line instead of rows, for 24 lines.
    known = frame.filter(is_baseline).drop_nulls("loss")
    listed = [f"{row['label']} {format_number(row['loss'], '.3f')}" for row in known.to_dicts()]
    row = frame.row(0, named=True)
    what = f"{unit_words(row)}, {split_words(folder.study, row)}"
    # The usual unit and split need no line of a form that fits 80 x 24.
    if row["metric"] == "token" and row["split"] == "test":
        what = ""
    more = "more with --explain"
    if listed:
        more = f"baselines: {', '.join(listed)}; {more}"
    legend = [more]
    aim = report.aim
    address = shown_address(folder.address)
    # A command that does not fit behind the folder has its own line: it is copied from there.
    if len(f"{address}; {report.next_line}") <= WIDTH:
        aim = f"{address}; {aim}"
    else:
        legend.append(address)
    return replace(
        report,
        heading=(what,),
        tables=tuple(tables),
        legend=tuple(legend),
        account={},
        aim=aim,
        says_version=False,
    )
