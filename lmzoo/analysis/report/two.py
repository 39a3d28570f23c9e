r"""The page that compares two studies, or one study made with two versions.

Points are matched by label. The seeds of two studies are not paired, so

    difference = B − A,   half-width = √(h_A² + h_B²)          h: half-width of a loss's interval
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from lmzoo.analysis.formatting import MISSING, format_mean
from lmzoo.analysis.load import StudyFolder, load_study
from lmzoo.analysis.ranking import rank_points
from lmzoo.analysis.render import TextTable
from lmzoo.analysis.report.forest import LINES, forest_chart, row_height
from lmzoo.analysis.report.html import (
    Section,
    chart_figure,
    code_block,
    html_page,
    html_table,
    paragraphs,
)
from lmzoo.analysis.reproduce import reproduce_commands
from lmzoo.errors import UserError

NAMES = ("A", "B")
NUMBERS = ("difference", "low", "high")


def render_two(paths: Sequence[Path], metric: str = "token") -> str:
    """Return the page of two studies.

    Raises:
        UserError: The studies have no ranked point in common, or one cannot be ranked.
    """
    folders = [load_study(path) for path in paths]
    ranked = [rank_points(f.runs, f.events, f.study, metric=metric) for f in folders]
    rows = matched_rows(*ranked)
    if not rows:
        raise UserError(f"{paths[0]} and {paths[1]} have no ranked point of the same label")
    lead = "".join(
        paragraphs([f"{name}: {path}, {f.study['question']}"])
        for name, path, f in zip(NAMES, paths, folders, strict=True)
    )
    sections = [Section("Differences", _differences(rows, folders))]
    for name, path, folder, frame in zip(NAMES, paths, folders, ranked, strict=True):
        chart = forest_chart(frame)
        body = chart_figure(chart, f"Differences within study {name}") if chart else ""
        body += code_block(reproduce_commands(path, folder))
        sections.append(Section(f"Study {name}", body))
    return html_page(f"{folders[0].study['name']}: two studies", lead, sections)


def matched_rows(first: pl.DataFrame, second: pl.DataFrame) -> list[dict[str, Any]]:
    """Return label, losses, verdicts, difference B − A and its interval of common points."""
    others = {row["label"]: row for row in second.to_dicts() if row["loss"] is not None}
    rows = []
    for a in first.to_dicts():
        b = others.get(a["label"])
        if a["loss"] is None or b is None:
            continue
        halves = [None if x["high"] is None else x["high"] - x["loss"] for x in (a, b)]
        half = None if None in halves else math.hypot(*(h or 0.0 for h in halves))
        difference = b["loss"] - a["loss"]
        rows.append(
            {
                "label": a["label"],
                "a": a,
                "b": b,
                "difference": difference,
                "low": None if half is None else difference - half,
                "high": None if half is None else difference + half,
            }
        )
    return rows


def _differences(rows: list[dict[str, Any]], folders: Sequence[StudyFolder]) -> str:
    cells = [
        (
            row["label"],
            *(format_mean(row[x]["loss"], row[x]["high"], ".3f") for x in "ab"),
            format_mean(row["difference"], row["high"], "+.3f"),
            *(row[x]["verdict"] or MISSING for x in "ab"),
        )
        for row in rows
    ]
    header = ("point", "loss A", "loss B", "B − A", "verdict A", "verdict B")
    text = frozenset({"point", "verdict A", "verdict B"})
    table = html_table(TextTable("test loss in both studies", header, cells, text), kind="sortable")
    chart = chart_figure(_chart(rows), "Difference of each point between the studies")
    note = paragraphs(["The seeds of two studies are not paired, so these intervals are wide."])
    return chart + table + note + _options(*(f.study for f in folders))


def _chart(rows: list[dict[str, Any]]) -> Any:
    values = [{key: row[key] for key in ("label", *NUMBERS)} for row in rows]
    base = alt.Chart(alt.InlineData(values=values)).encode(
        y=alt.Y("label:N", sort=None, title=None).axis(ticks=False, domain=False, labelExpr=LINES),
        tooltip=["label:N", *(alt.Tooltip(f"{name}:Q", format="+.4f") for name in NUMBERS)],
    )
    title = "loss in B less loss in A"
    zero = (
        alt.Chart(alt.InlineData(values=[{"zero": 0}]))
        .mark_rule(strokeDash=[4, 3], color="var(--muted)")
        .encode(x=alt.X("zero:Q", title=title))
    )
    rule = base.mark_rule(strokeWidth=2, color="var(--fg)").encode(
        x=alt.X("low:Q", title=title), x2="high:Q"
    )
    mark = base.mark_point(filled=True, size=90, opacity=1, color="var(--fg)").encode(
        x=alt.X("difference:Q", title=title)
    )
    heading = alt.TitleParams("B less A, 95 % intervals", anchor="start")
    height = row_height(row["label"] for row in rows)
    size = {"width": "container", "height": height * len(rows)}
    fit = alt.AutoSizeParams(type="fit-x", contains="padding")
    return alt.layer(zero, rule, mark).properties(**size, title=heading, autosize=fit)


def _options(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Return the options in which the studies differ as a table; a line if there are none."""
    a, b = ({**s.get("budget", {}), **s.get("asked", {})} for s in (first, second))
    rows = [
        (key, str(a.get(key, MISSING)), str(b.get(key, MISSING)))
        for key in dict.fromkeys([*a, *b])
        if a.get(key) != b.get(key)
    ]
    if not rows:
        return paragraphs(["The studies have the same options."])
    title = "options that differ"
    return html_table(TextTable(title, ("option", "A", "B"), rows, frozenset({"option", "A", "B"})))
