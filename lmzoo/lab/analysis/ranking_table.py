"""The ranking of a study as text: heading, tables and legend; and its short form for a terminal.

Each group of comparable points has two tables: the results, and how each setting was found, where
a column with equal cells is a part of the title. A missing number is "—", never 0.

The short form fits 80 x 24: what is doubtful, the answer, the points, the next command. A diagnosis
says what makes numbers worth little, before them:

    no model below the unigram    no trained point is better than the worst model of counts
    models lose to the 5-gram     as `ranking.py` says
    curves still fall             the median gain of the last epoch exceeds half of the margin; or,
                                  at a constant rate, each doubling up to the epochs named gains
                                  more than it, if gains shrink as between the last two doublings
    marks                         those of a ranking, such as a chosen setting at an edge
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange, near_bound
from lmzoo.lab.analysis.columns import (
    Column,
    in_unit,
    json_columns,
    legends,
    maximized,
    shown_columns,
    text_table,
)
from lmzoo.lab.analysis.formatting import (
    METRIC,
    SIZE_OF,
    UNITS,
    digits_of,
    effect_words,
    format_number,
    format_value,
    join_labels,
    metric_of,
    positive_halves,
    size_line,
    table_title,
)
from lmzoo.lab.analysis.load import StudyFolder, distinct_ranges, learning_curves, load_study
from lmzoo.lab.analysis.ranking import (
    LOSES,
    TABLE_KEYS,
    accuracy_lines,
    baseline_lines,
    baseline_name,
    baselines,
    rank_points,
)
from lmzoo.lab.analysis.render import KEYS, Report, TextTable, store_address
from lmzoo.lab.analysis.verdict_lines import (
    answer,
    data_warnings,
    impossible_warnings,
    verdict_lines,
    words,
)
from lmzoo.lab.statistics.compared import UNDECIDED
from lmzoo.lab.store.labels import SCORE_KINDS
from lmzoo.lab.store.records import RUNS, STATUSES

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
    "apart": "trained in another environment than the reference: no verdict, because the whole "
    "difference may be that of the environment",
    "noisy": "the losses vary much more between seeds than those of other points. Their variance "
    "is not shared; a noisy reference makes all differences uncertain: it needs seeds first",
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
    counts = ", ".join(f"{(statuses == name).sum()} {name}" for name in STATUSES)
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


def _digits(part: pl.DataFrame) -> str:
    """Return 3 decimals, or 4 if an interval is too narrow for three; more if all are."""
    known = positive_halves(part, "loss")
    if known and max(known) < 0.001:
        return digits_of(max(known), part["loss"].drop_nulls(), 4)
    return "4f" if known and min(known) < 0.001 else "3f"


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


WIDTH = 80
MOST_TIMES = 32
"""Epochs are not predicted further than this many times those of the study."""
MOST_NAMED = 3
"""Points that a line names."""
COUNTS = (pl.col("parameters") == 0).fill_null(value=False)
"""Models of counts, baselines or points; the parameters of the user's programs are not known."""


def brief_report(report: Report, folder: StudyFolder, path: Path) -> Report:
    """Return the short form of a ranking's report."""
    frame = report.frame
    baseline = pl.col("point").is_in(baselines(folder.study))
    parts = frame.filter(~baseline).partition_by(TABLE_KEYS, maintain_order=True)
    tables = [
        text_table(
            SCORE_KINDS.get(part["score"].item(0), "") * (len(parts) > 1),
            part.to_dicts(),
            result_columns(part, "brief"),
        )
        for part in parts
    ]
    known = frame.filter(baseline).select("label", "loss").drop_nulls()
    listed = ", ".join(f"{label} {format_number(loss, '.3f')}" for label, loss in known.iter_rows())
    row = frame.row(0, named=True)
    usual = (row["metric"], row["split"]) == ("token", "test")
    unit = UNITS.get(row["metric"], row["metric"])
    what = "" if usual else f"{unit}, {split_words(folder.study, row)}"
    losses = as_metric(folder.study, frame)
    heading = (folder.study["question"], *caveats(folder, losses), answer(losses), what)
    return replace(
        report,
        heading=(*filter(None, heading), *diagnoses(folder, losses)),
        tables=tuple(tables),
        legend=(
            f"baselines: {listed}; more with --explain" if listed else "more with --explain",
            *_last_lines(frame, folder, path),
        ),
    )


def diagnoses(folder: StudyFolder, frame: pl.DataFrame) -> Iterator[str]:
    """Yield what makes some of the numbers doubtful, the gravest first."""
    yield from data_warnings(folder.study, folder.damaged)
    for mark, text in MARKS.items():
        marked = pl.col("marks").list.contains(mark)
        if mark == "noisy":  # the verdict of a point says it all, if it has one
            marked &= pl.col("reference") | (pl.col("verdict") == UNDECIDED)
        own = frame.filter(marked)["label"].to_list()
        if own and mark == "edge":
            yield f"edge: {_named(own)}: {_edges(folder.study, frame.filter(marked))}"
        elif own and mark != "fixed":
            yield f"{mark}: {_named(own)}: {text.partition('.')[0]}"


def _edges(study: Mapping[str, Any], marked: pl.DataFrame) -> str:
    """Return which fields have an outermost value, and what to do: a bound has no value beyond."""
    bounds, fields = set[str](), dict[str, None]()
    for row in marked.to_dicts():
        for field in row["edge"]:
            fields[field] = None
            ends = next((p for p in study["points"] if p["id"] == row["point"]), {}).get("search")
            ends = (ends or study["search"]).get(field, {})
            value = json.loads(row["setting"])[field]
            if "low" in ends and near_bound(value, FloatRange(**ends)):
                bounds.add(field)
    wider = f"; at a bound: {', '.join(sorted(bounds))}: search a wider range (--search-space)"
    return (
        f"{', '.join(fields)}: the chosen value is the first or last one tried; try more "
        f"(--samples {2 * study['budget']['samples']}){wider if bounds else ''}"
    )


def _hardly_trained(frame: pl.DataFrame) -> str:
    """Return the worst model of counts and its loss if no model is better; else ""."""
    losses = frame.sort("loss").drop_nulls("loss")
    worst, best = losses.filter(COUNTS).tail(1), losses.filter(~COUNTS).head(1)
    if worst.is_empty() or best.is_empty() or best["loss"].item() < worst["loss"].item():
        return ""
    return "{} ({:.3f})".format(*worst.select("label", "loss").row(0))


def caveats(folder: StudyFolder, frame: pl.DataFrame) -> list[str]:
    """Return what makes all numbers doubtful; a page, a report and a ranking start with it."""
    found, curves = list[str](), learning_curves(folder)
    epochs, last = _epochs_needed(folder, frame), int(curves["epoch"].max() or 0)  # type: ignore[arg-type]
    fall = _fall(curves, last - 1, last)
    raised = f"raise --epochs to about {epochs}" if epochs else "raise --epochs"
    if baseline := _hardly_trained(frame):
        return [f"No point is better than {baseline}: they are hardly trained; {raised}."]
    compared = frame.drop_nulls("kn5")
    losing = compared.filter(kn5=LOSES)
    if losing.height:
        labels, row = losing["label"].to_list(), losing.row(0, named=True)
        if len(labels) == 1:
            who = f"{join_labels(labels)} loses"
        elif len(labels) == compared.height:
            who = "Both models lose" if len(labels) == 2 else f"All {len(labels)} models lose"
        elif len(labels) <= MOST_NAMED:
            who = f"{join_labels(labels)} lose"
        else:
            who = f"{len(labels)} of {compared.height} models lose"
        loss = row["loss"] - row["kn5_difference"]
        found.append(f"{who} to the {baseline_name(frame)} ({loss:.3f}), a model of counts.")
    if epochs:
        found.append(f"The curves still fall at the last epoch: {raised}.")
    elif 2 * fall > frame["margin"].item(0) > 0:
        unit = effect_words(frame["metric"].item(0))
        found.append(f"The curves still fall, by {fall:.3f} {unit} in the last epoch.")
    return found


def _fall(curves: pl.DataFrame, start: int, end: int) -> float:
    """Return by how much the loss fell between two epochs, the median over points; 0: unknown."""
    both = curves.filter(epoch=start).join(curves.filter(epoch=end), on="label")
    return both.select((pl.col("loss") - pl.col("loss_right")).median()).item() or 0.0


def _named(labels: Sequence[str]) -> str:
    rest = f" and {len(labels) - MOST_NAMED} more" if len(labels) > MOST_NAMED else ""
    return f"{join_labels(labels[:MOST_NAMED])}{rest}"


def _epochs_needed(folder: StudyFolder, frame: pl.DataFrame) -> int | None:
    """Return the epochs that the curves ask for; None if those of the study are enough."""
    fields = (folder.study.get("asked") or {}).get("fields", {})
    curves = learning_curves(folder)
    last = curves["epoch"].max()
    margin = frame["margin"].item(0)
    if "recipe.schedule" in fields or not margin or not isinstance(last, int) or last < 4:
        return None  # a rate that falls to zero makes every curve flat at its end
    early, late = _fall(curves, last // 4, last // 2), _fall(curves, last // 2, last)
    ratio = min(1.0, late / early) if early > 0 else 1.0
    epochs = last
    while (late := late * ratio) > margin and epochs < MOST_TIMES * last:
        epochs *= 2
    return epochs if epochs > last else None


def _last_lines(frame: pl.DataFrame, folder: StudyFolder, path: Path) -> tuple[str, ...]:
    """Return the study's folder and the next command: one that decides, or the report.

    Points that are hardly trained need epochs first. A command that does not fit behind the folder
    has its own line: it is copied from there.
    """
    here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    address, study = store_address(here), folder.study
    undecided = frame.filter(verdict=UNDECIDED)
    untrained = _hardly_trained(as_metric(study, frame))
    if not (untrained or undecided.height) or not study.get("script") or "given" not in study:
        name = path.name if address == str(RUNS / path.name) else address
        return (f"{address}; next: lmzoo report {shlex.quote(name)}",)
    command, aim = [*study["script"], *study["given"]], "to decide more"
    if untrained:
        epochs = _epochs_needed(folder, frame) or 4 * study["budget"]["epochs"]
        command, aim = _with_option(command, "--epochs", epochs), "to train longer"
    else:
        if undecided["needs_tuning"].any():
            command = _with_option(command, "--samples", 2 * study["budget"]["samples"])
        if undecided["seeds_needed"].count() and "--until-decided" not in command:
            command += ["--until-decided"]
    lines = address, f"{aim}: {shlex.join(command)}"
    return lines if len("; ".join(lines)) > WIDTH else ("; ".join(lines),)


def _with_option(command: Sequence[str], name: str, value: int) -> list[str]:
    """Return a command with this value of an option, which it may have already."""
    rest = [*command]
    if name in rest:
        at = rest.index(name)
        del rest[at : at + 2]
    return [*rest, name, str(value)]
