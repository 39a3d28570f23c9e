"""The forest plot of a ranking: differences to the reference, grouped by verdict."""

import html
import re
import textwrap
from importlib.resources import files
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from lmzoo.lab.analysis.formatting import UNITS, margin_words
from lmzoo.lab.analysis.ranking import TABLE_KEYS
from lmzoo.lab.analysis.report.colours import (
    BASELINE,
    COLOURS,
    GROUPS,
    LABEL_WIDTH,
    WIDE_LABEL,
    group_of,
    label_axis,
    label_lines,
    with_rows,
)

MARKS = (
    *("triangle-left", "triangle-left", "diamond", "circle", "circle"),
    *("triangle-right", "triangle-right", "cross"),
)
SHAPES: dict[str, str] = dict(zip(GROUPS, MARKS, strict=True))
PICTURE_WIDTH, NARROW_WIDTH, NARROW_NOTE = 760, 400, 55
"""Pixels, and letters of a line of notes."""
TEXT = {"labelColor": "var(--fg)", "labelFontSize": 12, "titleFontWeight": "normal"}
LINES = dict.fromkeys(("gridColor", "domainColor", "tickColor"), "var(--line)")
PICTURE: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {**TEXT, **LINES, "titleColor": "var(--muted)", "titleFontSize": 12},
    "axisY": {"labelLimit": 320},
    "axisXQuantitative": {"tickCount": 7, "labelOverlap": "greedy", "labelSeparation": 8},
    "legend": {**TEXT, "labelFontSize": 13, "columns": 3, "columnPadding": 24},
    "title": {"color": "var(--fg)", "subtitleColor": "var(--muted)", "fontSize": 14},
}
"""Vega's config of a picture; `page.js` has that of a page."""
WIDEST = 4.0
"""Intervals end at this multiple of the largest distance among points that are no baselines."""


def forest_rows(part: pl.DataFrame) -> list[dict[str, Any]]:
    """Return label, group, difference, low and high of the points of one table, in plot order.

    A point without a verdict is a baseline, or leaks. The ends of its interval are cut at `WIDEST`.
    """
    rows = [
        {
            "label": row["label"],
            "group": group_of(row),
            "difference": 0.0 if row["reference"] else row["difference"],
            "low": row["difference_low"],
            "high": row["difference_high"],
        }
        for row in part.to_dicts()
        if row["reference"] or row["difference"] is not None
    ]
    return sorted(rows, key=lambda row: (GROUPS.index(row["group"]), row["difference"]))


def forest_charts(ranked: pl.DataFrame) -> list[Any]:
    """Return the plots of the tables of a ranking that have differences."""
    parts = ranked.partition_by(TABLE_KEYS, maintain_order=True)
    return [chart for chart in map(forest_chart, parts) if chart is not None]


def forest_chart(part: pl.DataFrame) -> Any:
    """Return the plot of one table, with the margin as a band; None without differences."""
    rows = forest_rows(part)
    if len(rows) < 2:
        return None
    rows, beyond = _inside(rows)
    labels = [row["label"] for row in rows]
    groups = [group for group in GROUPS if any(row["group"] == group for row in rows)]
    margin, metric = part["margin"].item(0), part["metric"].item(0)
    unit = "nats per token" if metric in UNITS else metric
    pair: Any = (
        kind("group:N", title=None)
        .scale(domain=groups, range=[values[group] for group in groups])
        .legend(alt.Legend(orient="top", title=None))
        for kind, values in ((alt.Color, COLOURS), (alt.Shape, SHAPES))
    )
    colour, shape = pair
    band = alt.Chart(alt.InlineData(values=[{"from": -margin, "to": margin}]))
    band = band.mark_rect(color="var(--band)").encode(x=alt.X("from:Q", title=unit), x2="to:Q")
    zero = alt.Chart(alt.InlineData(values=[{"zero": 0}]))
    zero = zero.mark_rule(strokeDash=[4, 3], color="var(--muted)")
    zero = zero.encode(x=alt.X("zero:Q", title=unit))
    numbers = [alt.Tooltip(f"{name}:Q", format="+.4f") for name in ("difference", "low", "high")]
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        y=alt.Y("label:N", sort=labels, title=None).axis(label_axis(labels)),
        tooltip=[alt.Tooltip("label:N"), alt.Tooltip("group:N", title="verdict"), *numbers],
        color=colour,
    )
    rules = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=unit), x2="high:Q")
    points = base.mark_point(filled=True, size=90, opacity=1)
    points = points.encode(x=alt.X("difference:Q", title=unit), shape=shape)
    right = "better" if part["higher_is_better"].item(0) else "worse"
    note = f"to the right is {right}; the band is ±{margin:g} {margin_words(metric)}{beyond}"
    heading = alt.TitleParams(
        "Differences to the reference, 95 % intervals", subtitle=[note], anchor="start"
    )
    fit = alt.AutoSizeParams(type="fit-x", contains="padding")
    chart = with_rows(alt.layer(band, zero, rules, points), labels)
    return chart.properties(width="container", title=heading, autosize=fit)


def forest_picture(part: pl.DataFrame, *, narrow: bool = False) -> str:
    """Return the plot of one table as SVG, which follows the reader's setting, light or dark.

    A `narrow` one is for a phone. A `ValueError` says that the table has no differences.
    """
    chart = forest_chart(part)
    if chart is None:
        raise ValueError("a table without differences has no forest plot")
    spec = chart.properties(width=NARROW_WIDTH if narrow else PICTURE_WIDTH).to_dict()
    letters = LABEL_WIDTH if narrow else WIDE_LABEL
    config = PICTURE
    if narrow:
        # In one column, no name is cut in a font that is wider than the measured one.
        config = {**PICTURE, "legend": {**PICTURE["legend"], "columns": 1, "labelFontSize": 11}}
        notes = spec["title"]["subtitle"]
        spec["title"] |= {
            "subtitle": [x for note in notes for x in textwrap.wrap(note, NARROW_NOTE)]
        }
        spec["title"]["frame"] = "bounds"
    else:
        spec["params"] = [{"name": "wide", "value": True}]
        spec["height"] = spec["usermeta"]["wide"]
    longest = max(len(line) for text in part["label"] for line in label_lines(text, letters))
    # The reader's font may be wider than the one that Vega measures.
    spec["padding"] = {"left": 4 + round(1.4 * longest), "right": 8, "top": 4, "bottom": 4}
    return picture(spec, config)


def picture(spec: dict[str, Any], config: dict[str, Any] = PICTURE) -> str:
    """Return a chart's specification as SVG, which follows the reader's setting, light or dark."""
    svg = vl_convert.vegalite_to_svg({**spec, "config": config})
    css = files("lmzoo.lab.analysis.report").joinpath("page.css").read_text("utf-8")
    light, dark = (" ".join(x.split()) for x in re.findall(r":root \{.*?\}", css, re.DOTALL))
    style = f"<style>{light}@media (prefers-color-scheme: dark){{{dark}}}</style>"
    head = f"<title>{html.escape(spec['title']['text'])}</title>{style}"
    return svg.replace(">", f">{head}", 1) + "\n"


def _inside(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Leave out baselines far from the other points; return what a note says about them."""
    ends = [
        abs(end)
        for row in rows
        if row["group"] != BASELINE
        for end in (row["difference"], row["low"], row["high"])
        if end is not None
    ]
    limit = WIDEST * max(ends, default=0.0)
    far = [row for row in rows if row["group"] == BASELINE and abs(row["difference"]) > limit > 0]
    kept = [row for row in rows if row not in far]
    listed = ", ".join(f"{row['label']} {row['difference']:+.3f}" for row in far)
    return kept, f"; not shown: {listed}".replace("-", "−") if far else ""
