"""A ranking for a terminal of 80 x 24: what is doubtful, the answer, the points, the next command.

`ranking_table.py` has all columns, notes and settings. A diagnosis says what makes numbers worth
little, before them:

    no model below the unigram    no trained point is better than the worst model of counts
    models lose to the 5-gram     as `baseline_comparison.py` says
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

from lmzoo.base.search_space import FloatRange, near_bound
from lmzoo.lab.analysis.baseline_comparison import LOSES, baseline_name
from lmzoo.lab.analysis.columns import text_table
from lmzoo.lab.analysis.curve_data import learning_curves
from lmzoo.lab.analysis.formatting import format_number, join_labels
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.ranking import TABLE_KEYS, baselines
from lmzoo.lab.analysis.ranking_table import MARKS, as_metric, result_columns, split_words
from lmzoo.lab.analysis.render import Report, store_address
from lmzoo.lab.analysis.units import UNITS, effect_words
from lmzoo.lab.analysis.verdict_lines import answer, data_warnings
from lmzoo.lab.statistics.compared import UNDECIDED
from lmzoo.lab.store.labels import SCORE_KINDS

RUNS = Path("runs")
"""Where commands find a study by its name."""
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
    address, study = store_address(path), folder.study
    undecided = frame.filter(verdict=UNDECIDED)
    untrained = _hardly_trained(as_metric(study, frame))
    if not (untrained or undecided.height) or not study.get("script") or "given" not in study:
        name = path.name if path.parent == RUNS else address
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
