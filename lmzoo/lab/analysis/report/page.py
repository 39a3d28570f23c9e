"""The sections of a study's page: answer, ranking, curves, search, costs, audit."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.brief import caveats, diagnoses
from lmzoo.lab.analysis.comparison import compare_points, comparison_report
from lmzoo.lab.analysis.curve_data import (
    equal_costs,
    equal_survival,
    survival,
)
from lmzoo.lab.analysis.effects import estimate_effects
from lmzoo.lab.analysis.load import StudyFolder, load_study
from lmzoo.lab.analysis.mutants import read_mutants
from lmzoo.lab.analysis.ranking import TABLE_KEYS, rank_points
from lmzoo.lab.analysis.ranking_table import ranking_report
from lmzoo.lab.analysis.render import Report, TextTable, render
from lmzoo.lab.analysis.report.curve_charts import HEIGHT, curve_charts
from lmzoo.lab.analysis.report.forest import forest_chart
from lmzoo.lab.analysis.report.heat_map import heat_maps
from lmzoo.lab.analysis.report.html import (
    Section,
    chart_figure,
    download_link,
    folded,
    html_page,
    html_table,
    macro,
    paragraphs,
)
from lmzoo.lab.analysis.report.network import (
    audit_section,
    cut_points,
    data_section,
    network_section,
)
from lmzoo.lab.analysis.report.recipe import cost_line, recipe_section
from lmzoo.lab.analysis.report.summary import answer_lists, summary
from lmzoo.lab.analysis.verdict_lines import (
    answer,
    data_warnings,
    impossible_warnings,
    verdict_groups,
)
from lmzoo.lab.labels import find_point
from lmzoo.lab.store.studies import find_study

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
NETWORK = "The network"
SECOND = (
    "The verdicts are those of the ranking. The second table treats the test sequences as a "
    "sample, too, and uses the spread between the seeds of each point alone, where the "
    "ranking shares it "
    "among all points. So its intervals, p-values and ranks differ. It decides no verdict; it says "
    "whether other test data of the same kind could change a difference."
)
"""Why a page has two tables of differences."""


def render_report(
    study: Path | str,
    *,
    metric: str = "token",
    point: str = "",
) -> str:
    """Return the page of a study.

    Args:
        study: its folder, a file of records, or its name (or the beginning) in `runs/`.
        metric: `token` or `sentence`.
        point: label, cut or id of the point that the charts show at first; "" is all.

    Raises:
        UserError: Nothing can be ranked, or a name is unknown.
    """
    path = find_study(study)
    folder = load_study(path)
    label = find_point(folder.study["points"], point)["label"] if point else ""
    ranked = rank_points(folder.runs, folder.events, folder.study, metric=metric)
    ranking = ranking_report(folder, ranked)
    verdicts = verdict_groups(ranked)
    words = answer_lists(verdicts, set(cut_points(folder)))
    words += paragraphs(summary(folder, ranked), "text")
    network = network_section(folder)
    alarms = (*data_warnings(folder.study, folder.damaged), *impossible_warnings(ranked))
    known = len(verdicts) + len(alarms)
    sections = [
        Section("Ranking", _ranking(folder, ranked, ranking, known)),
        Section("The verdicts in words", words),
        *_curves(folder, ranked, metric),
        *_comparison(folder, metric),
        *_interactions(folder, metric),
        Section("Spent and reproduce", recipe_section(path, folder)),
        *([Section(NETWORK, network, folded=True)] if network else []),
        Section("The data", data_section(folder, ranked), folded=True),
        Section("Audit", audit_section(path, folder, ranked), folded=True),
    ]
    first = " ".join(filter(None, [*caveats(folder, ranked), answer(ranked)]))
    lead = paragraphs(filter(None, [first]), "lead")
    lead += paragraphs([*diagnoses(folder, ranked), cost_line(folder)]) + _forests(ranked)
    used = terms(lead + "".join(section.body for section in sections))
    sections.append(Section("Terms", used, folded=True))
    return html_page(ranking.heading[0], lead, sections, point=label)


def _forests(ranked: pl.DataFrame) -> str:
    """Return the forest plot of each table."""
    parts = ranked.partition_by(TABLE_KEYS, maintain_order=True)
    return "".join(chart_figure(chart) for chart in map(forest_chart, parts) if chart is not None)


def _ranking(folder: StudyFolder, ranked: pl.DataFrame, report: Report, above: int) -> str:
    """Return the tables, and the table as a file.

    `above` lines of the report's heading after the first are elsewhere on the page.
    """
    left = {label: lines for label, lines in ranked.select("label", "equations").iter_rows()}
    equations = {label + mark: lines for label, lines in left.items() for mark in ("", " ≡")}
    tables = "".join(
        html_table(
            _difference_first(table),
            kind="sortable" if table.header[0] == "rank" else "",
            notes=equations if "loss" in table.header else None,
        )
        for table in report.tables
    )
    if any(left.values()):
        note = (
            "Below a point is what it changes in the equations of its cell without cuts "
            f"(section {NETWORK!r}). The number behind a cut is its number in `lmzoo describe`."
        )
        tables = paragraphs([note], "text") + tables
    notes = paragraphs(report.heading[1 + above :]) + paragraphs(report.legend)
    csv = download_link(render(report, "csv"), f"{folder.study['name']}.csv")
    return tables + csv + folded("Notes on the columns", notes)


def _difference_first(table: TextTable) -> TextTable:
    """Return a table with the difference behind the verdict, where a phone shows it."""
    if not {"verdict", "difference"} <= set(table.header):
        return table
    names = [name for name in table.header if name != "difference"]
    names.insert(names.index("verdict") + 1, "difference")
    order = [table.header.index(name) for name in names]
    rows = [tuple(row[i] for i in order) for row in table.rows]
    return replace(table, header=tuple(names), rows=rows)


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
    return list(filter(None, [equal_survival(survival(folder))]))


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
    second = paragraphs(report.heading[1:]) + tables + paragraphs(report.legend)
    body = paragraphs([SECOND], "text") + folded("The second table", second)
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
        "same switches. A value on the diagonal is a mean over all pairs of points that differ in "
        "this switch only, so it can differ from the ranking, which compares one pair: "
        f"{_pair_counts(frames)} pairs for each switch."
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
    """Whether some effect, and at least half of the interactions, can be estimated."""
    interactions = frame.filter(pl.col("second").is_not_null())["effect"]
    return bool(frame["effect"].count()) and 2 * interactions.count() >= len(interactions)


def _pair_counts(frames: Sequence[pl.DataFrame]) -> str:
    own = pl.concat(frames).filter(pl.col("second").is_null(), pl.col("effect").is_not_null())
    low, high = own["count"].min(), own["count"].max()
    return str(low) if low == high else f"{low} to {high}"


def _effects(frames: Sequence[pl.DataFrame]) -> str:
    count = sum(frame["effect"].count() for frame in frames)
    return f"{count} effects of switches, and interactions"


def terms(page: str) -> str:
    """Return the terms in bold type of `glossary.md` that a page uses, as HTML."""
    text = unescape(re.sub(r"<script.*?</script>|<[^>]*>", " ", page, flags=re.DOTALL))
    glossary = files("lmzoo.lab.analysis.report").joinpath("glossary.md").read_text("utf-8")
    known = re.findall(r"^\| \*\*(.*?)\*\* \| (.*) \|$", glossary, re.MULTILINE)
    used = [
        (term, meaning)
        for term, meaning in known
        if any(re.search(rf"\b{re.escape(word)}", text) for word in term.split(", "))
    ]
    return macro("terms", used)
