"""The forest plot of a ranking: differences to the reference, grouped by verdict."""

import html
import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import vl_convert
from polars import DataFrame

from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.analysis.formatting import effect_words, format_number
from lmzoo.lab.analysis.ranking import TABLE_KEYS
from lmzoo.lab.analysis.report.colours import (
    BASELINE,
    CONFIGS,
    FOLDER,
    GROUPS,
    LABEL_WIDTH,
    WIDE_LABEL,
    by_verdict,
    chart_of,
    group_of,
    label_lines,
    label_rows,
    near_limit,
)
from lmzoo.lab.analysis.verdict_lines import counted_words
from lmzoo.lab.statistics.compared import UNDECIDED

PICTURE_WIDTH = 760
NARROW_WIDTH = 400
"""Pixels."""
NARROW_NOTE = 55
"""Letters of a line of notes."""
PICTURE: FieldsDict = CONFIGS["page"]
"""Vega's config of a picture; `page.js` has that of a page."""
BASELINES = 1.25
"""Baselines do not widen the axis by more than this."""


def forest_rows(part: DataFrame) -> list[FieldsDict]:
    """Return what the plot of one table shows of each point, in plot order.

    `difference`, `low` and `high` are the numbers of the ranking; `at`, `from` and `to` are those
    on the axis; `arrows` are its ends beyond which a number is. `thin` and `thin_to` are the ends
    of the interval that is corrected for the number of points, where it alone holds 0.
    """
    rows = list(map(_row, part.to_dicts()))
    limit = _limit(rows, part["margin"].item(0))
    for row in rows:
        _place(row, limit)
    rows.sort(key=lambda row: row["difference"] or 0.0)
    order = list(GROUPS)
    return sorted(rows, key=lambda row: order.index(row["group"]))


def _row(row: Fields) -> FieldsDict:
    difference = row["difference"]
    if row["reference"]:
        difference = 0.0
    low = row["difference_low"]
    thin = None
    thin_to = None
    # An undecided point whose own interval excludes 0 would look decided.
    if row["verdict"] == UNDECIDED and low is not None and low * row["difference_high"] > 0:
        half = abs(row["half_corrected"])
        thin = difference - half
        thin_to = difference + half
    notes = [
        f"{row[column]} of {row['confirm']} seeds {word}"
        for column, word in (("confirm_diverged", "diverged"), ("missing", "failed or missing"))
        if row[column]
    ]
    if row.get("solved") is not None:
        notes.append(counted_words(row))
    note = ", ".join(notes)
    # A point without a value keeps its row: nobody would miss an absent one.
    if difference is None:
        note = f"no value: {note}"
    return {
        "label": row["label"],
        "group": group_of(row),
        "difference": difference,
        "low": low,
        "high": row["difference_high"],
        "note": note,
        "thin": thin,
        "thin_to": thin_to,
    }


def _limit(rows: Sequence[Fields], margin: float) -> float:
    """Return the end of the axis on both sides: no single point makes all others one dot."""
    compared = []
    of_baselines = []
    for row in rows:
        ends = (row["difference"], row["low"], row["high"])
        reach = max((abs(end) for end in ends if end is not None), default=0.0)
        if row["group"] == BASELINE:
            of_baselines.append(reach)
        elif reach:
            compared.append(reach)
    if not compared:
        return max([margin] + of_baselines)
    limit = near_limit(compared, margin)
    widest = limit
    for reach in of_baselines:
        # A far baseline would hide the intervals of all others behind their marks.
        if reach <= BASELINES * limit:
            widest = max(widest, reach)
    return widest


def _place(row: FieldsDict, limit: float):
    """Add where a row is on an axis that ends at the limit, and what does not fit there."""
    numbers = {"at": row["difference"], "from": row["low"], "to": row["high"]}
    arrows = {
        math.copysign(limit, number)
        for number in numbers.values()
        if number is not None and abs(number) > limit
    }
    row["arrows"] = sorted(arrows)
    if arrows:
        notes = (format_number(row["difference"], "+.3g"), row["note"])
        row["note"] = "; ".join(filter(None, notes))
    for place, number in numbers.items():
        if number is None:
            continue
        # Beyond the axis, an arrow stands for the mark.
        if place != "at" or abs(number) <= limit:
            row[place] = min(max(number, -limit), limit)


def forest_charts(ranked: DataFrame) -> list[Any]:
    """Return the plots of the tables of a ranking that have differences."""
    parts = ranked.partition_by(TABLE_KEYS, maintain_order=True)
    return list(filter(None, map(forest_chart, parts)))


def forest_chart(part: DataFrame) -> Any:
    """Return the plot of one table, with the margin as a band; None without differences."""
    rows = forest_rows(part)
    known = [row for row in rows if row["difference"] is not None]
    if len(known) < 2:
        return None
    margin = part["margin"].item(0)
    unit = effect_words(part["metric"].item(0))
    # The axis has the sign of the metric.
    right = "worse"
    shape = "shape"
    if part["higher_is_better"].item(0):
        right = "better"
        shape = "turned"
    has_thin = any(row["thin"] is not None for row in rows)
    has_arrows = any(row["arrows"] for row in rows)
    notes = [f"to the right is {right}"]
    if margin:
        notes[0] += f"; the band is ±{margin:g} {unit}"
    if has_arrows:
        notes.append("arrows: beyond the axis, with the number below the name")
    if has_thin:
        notes.append("thin lines: intervals that are corrected for the number of points")
    # The title promises intervals.
    if part["difference_low"].is_null().all():
        notes.append("one seed has no interval")
    return chart_of(
        "forest",
        "Differences to the reference, 95 % intervals",
        notes,
        rows=rows,
        labels=label_rows({row["label"]: row["note"] for row in rows}),
        margin=margin,
        unit=unit,
        has_thin=has_thin,
        has_arrows=has_arrows,
        **by_verdict(rows, shape),
    )


def forest_picture(part: DataFrame, *, narrow: bool = False) -> str:
    """Return the plot of one table as SVG, which follows the reader's setting, light or dark.

    A `narrow` one is for a phone. A `ValueError` says that the table has no differences.
    """
    spec = forest_chart(part)
    if spec is None:
        raise ValueError("a table without differences has no forest plot")
    if narrow:
        spec["width"] = NARROW_WIDTH
        letters = LABEL_WIDTH
        # In one column, no name is cut in a font that is wider than the measured one.
        legend = PICTURE["legend"] | {"columns": 1, "labelFontSize": 11}
        config = PICTURE | {"legend": legend}
        title = spec["title"]
        notes = title["subtitle"]
        title["subtitle"] = [line for note in notes for line in textwrap.wrap(note, NARROW_NOTE)]
        title["frame"] = "bounds"
    else:
        spec["width"] = PICTURE_WIDTH
        letters = WIDE_LABEL
        config = PICTURE
        spec["params"] = [{"name": "wide", "value": True}]
        spec["height"] = spec["usermeta"]["wide"]
    longest = 0
    for label in part["label"]:
        longest = max(longest, max(map(len, label_lines(label, letters))))
    # The reader's font may be wider than the one that Vega measures.
    left = 4 + round(1.4 * longest)
    spec["padding"] = {"left": left, "right": 8, "top": 4, "bottom": 4}
    return picture(spec, config)


def picture(spec: FieldsDict, config: FieldsDict = PICTURE) -> str:
    """Return a chart's specification as SVG, which follows the reader's setting, light or dark."""
    svg = vl_convert.vegalite_to_svg(spec | {"config": config})
    css = (FOLDER / "page.css").read_text("utf-8")
    one_line = " ".join(css.split())
    light, dark = re.findall(r":root \{.*?\}", one_line)
    style = f"<style>{light}@media (prefers-color-scheme: dark){{{dark}}}</style>"
    head = f"<title>{html.escape(spec['title']['text'])}</title>{style}"
    return svg.replace(">", f">{head}", 1) + "\n"
