"""The sections of a study's page: answer, ranking, curves, search, costs, audit, samples."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from lmzoo.analysis.comparison import compare_points
from lmzoo.analysis.comparison_table import comparison_report
from lmzoo.analysis.curve_charts import HEIGHT, curve_charts
from lmzoo.analysis.curve_data import (
    equal_costs,
    equal_survival,
    numeric_fields,
    stopped_beside,
    survival,
    tuned_settings,
)
from lmzoo.analysis.effects import estimate_effects
from lmzoo.analysis.heat_map import heat_maps
from lmzoo.analysis.load import StudyFolder, load_study
from lmzoo.analysis.mutants import read_mutants
from lmzoo.analysis.ranking import TABLE_KEYS, rank_points
from lmzoo.analysis.ranking_table import ranking_report
from lmzoo.analysis.render import Report, render
from lmzoo.analysis.report.best import audit_section, samples_section
from lmzoo.analysis.report.forest import forest_chart
from lmzoo.analysis.report.html import (
    Section,
    chart_figure,
    code_block,
    download_link,
    html_page,
    html_table,
    paragraphs,
)
from lmzoo.analysis.report.spent import spent_table
from lmzoo.analysis.report.summary import summary
from lmzoo.analysis.report.terms import terms
from lmzoo.analysis.reproduce import reproduce_commands
from lmzoo.analysis.verdict_lines import VerdictGroup, verdict_groups
from lmzoo.equations import cell_equations
from lmzoo.errors import UserError
from lmzoo.store.records import USER_CODE

COSTLY, SEARCHED = "What it costs", "The search"
COMPUTED = {
    "state_size": "State: the numbers that the model carries from token to token.",
    "flops": "Compute: 2 operations for each multiplication of a weight with an activation, in the "
    "matrix products of one forward pass; training takes about three times as much.",
}
"""Cost -> how it is counted."""
CHARTS = {
    "Learning curves": ("learning",),
    SEARCHED: ("setting-", "survival"),
    COSTLY: ("parameters", "state", "compute", "time"),
}
"""Section -> first letters of the names of its charts in `curve_charts`."""
MOST = 20
"""Points of a verdict that the answer lists; the ranking has all."""


def render_report(
    path: Path, *, metric: str = "token", use_models: bool = True, data_dir: Path | None = None
) -> str:
    """Return the page of the study in folder `path`.

    Args:
        path: the study's folder.
        metric: `token` or `sentence`.
        use_models: sample from the best models and audit them, which loads the models.
        data_dir: folder of the corpus's files, for the samples.

    Raises:
        UserError: Nothing can be ranked, or a name is unknown.
    """
    folder = load_study(path)
    ranked = rank_points(folder.runs, folder.events, folder.study, metric=metric)
    ranking = ranking_report(folder, ranked)
    answer = verdict_groups(ranked)
    sections = [
        Section("Ranking", _ranking(folder, ranked, ranking, len(answer))),
        *_curves(folder, ranked, metric),
        *_comparison(folder, metric),
        *_interactions(folder, metric),
        Section("Audit", audit_section(folder, ranked, run=use_models)),
    ]
    if use_models:
        sections.append(Section("Samples", samples_section(path, folder, ranked, data_dir)))
    spent = html_table(spent_table(folder)) + code_block(reproduce_commands(path, folder))
    sections.append(Section("Spent and reproduce", spent))
    sections.append(Section("Terms", terms()))
    lead = paragraphs(summary(folder, ranked, answer), "text") + "".join(map(_answer, answer))
    return html_page(ranking.heading[0], lead, sections)


def _answer(group: VerdictGroup) -> str:
    """Return a verdict and its points as HTML; of many, the first ones."""
    rest = (
        [f"and {len(group.points) - MOST} more, in the ranking"] if len(group.points) > MOST else []
    )
    items = "".join(f"<li>{escape(text)}</li>" for text in group.points[:MOST] + rest)
    return (
        f'<div class="answer {group.verdict}"><p>{escape(group.head)}</p><ul>{items}</ul></div>\n'
    )


def _ranking(folder: StudyFolder, ranked: pl.DataFrame, report: Report, verdicts: int) -> str:
    """Return the forest plots, the tables, and the table as a file."""
    charts = ""
    for part in ranked.partition_by(TABLE_KEYS, maintain_order=True):
        chart = forest_chart(part)
        if chart is not None:
            charts += chart_figure(chart)
    left = {label: lines for label, lines in ranked.select("label", "equations").iter_rows()}
    equations = {label + mark: lines for label, lines in left.items() for mark in ("", " ≡")}
    tables = "".join(
        html_table(
            table,
            kind="sortable" if table.header[0] == "rank" else "",
            notes=equations if "loss" in table.header else None,
        )
        for table in report.tables
    )
    tables = _equations(folder, ranked) + tables
    notes = paragraphs(report.heading[1 + verdicts :]) + paragraphs(report.legend)
    csv = download_link(render(report, "csv"), f"{folder.study['name']}.csv")
    return charts + tables + csv + notes


def _equations(folder: StudyFolder, ranked: pl.DataFrame) -> str:
    """Return the equations of the reference's cell, if those of other points differ from them."""
    reference = ranked.filter("reference", pl.lit(ranked["equations"].list.len().sum() > 0))
    if reference.is_empty():
        return ""
    point, label = reference.select("point", "label").row(0)
    model = folder.runs.filter(pl.col("point") == point).select("model").first().collect().item()
    lines = cell_equations(json.loads(model).get("cell"), [folder.path / USER_CODE])
    note = (
        f"Equations of {label}. Below each other point are those that are different; an equation "
        "that a point does not use any more is left out. The number behind a cut is its number in "
        "`lmzoo describe`."
    )
    return paragraphs([note], "text") + code_block("\n".join(lines)) if lines else ""


def _curves(folder: StudyFolder, ranked: pl.DataFrame, metric: str) -> list[Section]:
    charts = curve_charts(folder, ranked, metric, page=True)
    sections = []
    for title, starts in CHARTS.items():
        own = [chart for name, chart in charts.items() if name.startswith(starts)]
        notes = _notes(title, folder, ranked)
        if own or notes:
            body = "".join(chart_figure(_wide(chart)) for chart in own)
            if title == COSTLY and len(own) > 1:
                body = f'<div class="side">{body}</div>\n'
            sections.append(Section(title, body + paragraphs(notes)))
    return sections


def _notes(title: str, folder: StudyFolder, ranked: pl.DataFrame) -> list[str]:
    """Return the lines below a section's charts: what is the same for all points has no chart."""
    if title == COSTLY:
        known = [text for cost, text in COMPUTED.items() if ranked[cost].count()]
        return [*equal_costs(ranked), *known]
    if title != SEARCHED:
        return []
    lines = [equal_survival(survival(folder))]
    for name in numeric_fields(folder):
        lines += stopped_beside(tuned_settings(folder, name), name)
    return [line for line in lines if line]


def _wide(chart: Any) -> Any:
    """Return a chart as wide as the page."""
    size = {} if chart.height is not alt.Undefined else {"height": HEIGHT}
    return chart.properties(width="container", autosize=alt.AutoSizeParams(type="fit-x"), **size)


def _comparison(folder: StudyFolder, metric: str) -> list[Section]:
    """Return the comparison over test sequences, if the runs stored their losses."""
    try:
        report = comparison_report(folder, compare_points(folder, metric=metric))
    except UserError:
        return []
    tables = "".join(html_table(table, kind="sortable") for table in report.tables)
    body = paragraphs(report.heading[1:]) + tables + paragraphs(report.legend)
    return [Section("Over seeds and sequences", body)]


def _interactions(folder: StudyFolder, metric: str) -> list[Section]:
    """Return the heat map of the effects of the study's mutants, if it has any."""
    try:
        cells = read_mutants(folder.path, folder, metric)
    except UserError:  # there are no mutants, or the wild type is incomplete
        return []
    frames = [frame for frame in map(estimate_effects, cells) if _has_pairs(frame)]
    if not frames:
        return []
    lines = [
        f"Means over {cells[0].losses.shape[1]} seeds of the {metric} loss. A switch is a "
        "difference to the wild type, such as a cut. Cuts that leave the same equations are the "
        "same switches."
    ]
    lines += [
        f"{cell.cell}: mutants left out because a seed is missing: {len(cell.incomplete)} "
        "(`lmzoo epistasis` lists them)"
        for cell in cells
        if cell.incomplete
    ]
    chart = heat_maps(frames, _effects(frames), page=True)
    return [Section("Interactions", paragraphs(lines) + chart_figure(chart))]


def _has_pairs(frame: pl.DataFrame) -> bool:
    """Whether two mutants differ in one switch only."""
    return bool(frame["effect"].count())


def _effects(frames: Sequence[pl.DataFrame]) -> str:
    count = sum(frame["effect"].count() for frame in frames)
    return f"{count} effects of switches, and interactions"
