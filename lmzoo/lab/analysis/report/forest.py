"""The forest plot of a ranking: differences to the reference, grouped by verdict."""

import html
import math
import re
import textwrap
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import polars as pl
import vl_convert

from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.analysis.formatting import effect_words, format_number
from lmzoo.lab.analysis.ranking import TABLE_KEYS
from lmzoo.lab.analysis.report.colours import (
    BASELINE,
    CONFIGS,
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

PICTURE_WIDTH, NARROW_WIDTH, NARROW_NOTE = 760, 400, 55
"""Pixels, and letters of a line of notes."""
PICTURE: FieldsDict = CONFIGS["page"]
"""Vega's config of a picture; `page.js` has that of a page."""
BASELINES = 1.25
"""Baselines do not widen the axis by more than this."""


def forest_rows(part: pl.DataFrame) -> list[FieldsDict]:
    """Return what the plot of one table shows of each point, in plot order.

    `difference`, `low` and `high` are the numbers of the ranking; `at`, `from` and `to` are those
    on the axis; `arrows` are its ends beyond which a number is. `thin` and `thin_to` are the ends
    of the interval that is corrected for the number of points, where it alone holds 0.
    """
    rows = [_row(row) for row in part.to_dicts()]
    limit = _limit(rows, part["margin"].item(0))
    for row in rows:
        _place(row, limit)
    order = [*GROUPS]
    return sorted(rows, key=lambda row: (order.index(row["group"]), row["difference"] or 0.0))


def _row(row: Fields) -> FieldsDict:
    difference = 0.0 if row["reference"] else row["difference"]
    low, high = row["difference_low"], row["difference_high"]
    thin = thin_to = None
    if row["verdict"] == UNDECIDED and low is not None and low * high > 0:
        half = abs(row["half_corrected"])
        thin = difference - half
        thin_to = difference + half
    counts = {"diverged": row["confirm_diverged"], "failed or missing": row["missing"]}
    lost = [f"{n} of {row['confirm']} seeds {word}" for word, n in counts.items() if n]
    if row.get("solved") is not None:
        lost.append(counted_words(row))
    note = "no value: " * (difference is None) + ", ".join(lost)
    return {
        "label": row["label"], "group": group_of(row), "difference": difference,
        "low": low, "high": high, "note": note,
        "thin": thin, "thin_to": thin_to,
    }  # fmt: skip


def _limit(rows: Sequence[Fields], margin: float) -> float:
    """Return the end of the axis on both sides: no single point makes all others one dot."""
    ends = [[row[name] for name in ("difference", "low", "high")] for row in rows]
    reach = [max((abs(end) for end in own if end is not None), default=0.0) for own in ends]
    kept = sorted(x for x, row in zip(reach, rows, strict=True) if row["group"] != BASELINE and x)
    if not kept:
        return max(*reach, margin)
    limit = near_limit(kept, margin)
    others = [x for x, row in zip(reach, rows, strict=True) if row["group"] == BASELINE]
    return max([limit, *(x for x in others if x <= BASELINES * limit)])


def _place(row: FieldsDict, limit: float) -> None:
    """Add where a row is on an axis that ends at the limit, and what does not fit there."""
    names = {"at": "difference", "from": "low", "to": "high"}
    known = {place: row[name] for place, name in names.items() if row[name] is not None}
    row["arrows"] = sorted({math.copysign(limit, x) for x in known.values() if abs(x) > limit})
    if row["arrows"]:
        number = format_number(row["difference"], "+.3g")
        row["note"] = "; ".join(filter(None, (number, row["note"])))
    for place, x in known.items():
        row[place] = min(max(x, -limit), limit)
    if abs(row["difference"] or 0.0) > limit:
        del row["at"]


def forest_charts(ranked: pl.DataFrame) -> list[Any]:
    """Return the plots of the tables of a ranking that have differences."""
    parts = ranked.partition_by(TABLE_KEYS, maintain_order=True)
    return [chart for chart in map(forest_chart, parts) if chart is not None]


def forest_chart(part: pl.DataFrame) -> Any:
    """Return the plot of one table, with the margin as a band; None without differences."""
    rows = forest_rows(part)
    if sum(row["difference"] is not None for row in rows) < 2:
        return None
    labels = {row["label"]: row["note"] for row in rows}
    margin = part["margin"].item(0)
    metric = part["metric"].item(0)

    unit = effect_words(metric)
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
    if part["difference_low"].is_null().all():
        notes.append("one seed has no interval")
    return chart_of(
        "forest", "Differences to the reference, 95 % intervals", notes,
        rows=rows,
        labels=label_rows(labels),
        margin=margin,
        unit=unit,
        has_thin=has_thin,
        has_arrows=has_arrows,
        stroke=by_verdict("colour", rows),
        shape=by_verdict(shape, rows),
        fill=by_verdict("fill", rows),
    )  # fmt: skip


def forest_picture(part: pl.DataFrame, *, narrow: bool = False) -> str:
    """Return the plot of one table as SVG, which follows the reader's setting, light or dark.

    A `narrow` one is for a phone. A `ValueError` says that the table has no differences.
    """
    chart = forest_chart(part)
    if chart is None:
        raise ValueError("a table without differences has no forest plot")
    spec = {**chart, "width": PICTURE_WIDTH}
    letters = WIDE_LABEL
    config = PICTURE
    if narrow:
        spec["width"] = NARROW_WIDTH
        letters = LABEL_WIDTH
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


def picture(spec: FieldsDict, config: FieldsDict = PICTURE) -> str:
    """Return a chart's specification as SVG, which follows the reader's setting, light or dark."""
    svg = vl_convert.vegalite_to_svg({**spec, "config": config})
    css = files("lmzoo.lab.analysis.report").joinpath("page.css").read_text("utf-8")
    light, dark = (" ".join(x.split()) for x in re.findall(r":root \{.*?\}", css, re.DOTALL))
    style = f"<style>{light}@media (prefers-color-scheme: dark){{{dark}}}</style>"
    head = f"<title>{html.escape(spec['title']['text'])}</title>{style}"
    return svg.replace(">", f">{head}", 1) + "\n"
