"""How charts tell the points of a study apart: by their own colours, or by their verdicts."""

import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import altair as alt
import polars as pl

from lmzoo.lab.analysis.verdict_lines import NOT_CONFIRMED, shown_verdict
from lmzoo.lab.statistics.compared import (
    BETTER,
    BETTER_OPEN,
    NEGLIGIBLE,
    SHOWN,
    UNDECIDED,
    WORSE,
    WORSE_OPEN,
)

REFERENCE, BASELINE, NO_VERDICT = "reference", "baseline", "no verdict"
BETTER_UNSURE, WORSE_UNSURE = (f"{verdict}, {NOT_CONFIRMED}" for verdict in (BETTER, WORSE))
KEYS = (
    *(BETTER, BETTER_OPEN, BETTER_UNSURE, REFERENCE, NEGLIGIBLE, UNDECIDED, NO_VERDICT),
    *(WORSE_UNSURE, WORSE_OPEN, WORSE, BASELINE),
)
GROUPS = tuple(SHOWN.get(key, key) for key in KEYS)
"""Verdicts, and the points that have none, as tables write them, in the order of plots."""
COLOURS = {
    group: f"var(--{key.replace(f', {NOT_CONFIRMED}', '-open').replace(' ', '-')})"
    for group, key in zip(GROUPS, KEYS, strict=True)
}
COLOURS[REFERENCE] = "var(--fg)"
"""Group -> its variable in `page.css`, which has a light and a dark value."""
PALETTE = (
    *("#468eff", "#059a85", "#d1735b", "#7852b7", "#b3288b", "#bc80bd"),
    *("#5f6e2f", "#cd0025", "#991ffd", "#ff4908", "#f231f7", "#cc3c64"),
)
"""Colours of points, in the order of the ranking: readable on white and on dark, and apart for
people who see no red, no green or no blue. A colour and the sixth after it, which has the same
dashes, are apart in grey."""
DASHES = ([1, 0], [4, 2], [1, 1.5], [6, 2, 1, 2], [8, 3], [2, 2])
MANY = 12
"""Points that have colours and names of their own; of more, a chart shows the verdicts."""


LABEL_WIDTH, WIDE_LABEL = 26, 46
"""Letters in a line of a label beside a chart, and on a wide page."""
SHORT = 30
"""Letters of a name at the end of a curve that stays as it is."""
NARROW_LINES = 2
"""Lines of a label on a phone, where all rows should be above the fold."""
PATH_NAME = re.compile(r"[\w=]+\xa0(?=\(\d+\))")


def label_lines(label: str, width: int = LABEL_WIDTH) -> list[str]:
    """Return a label in lines; a line that ends between two cuts ends with "+".

    A narrow chart names the paths of many cuts by their numbers only. Labels of single cuts and the
    ranking have the number and the name of each path.
    """
    bound = label.replace(" (", "\xa0(").replace(" +", "\xa0+")
    lines = textwrap.wrap(bound, width) or [""]
    if width < WIDE_LABEL and len(lines) > NARROW_LINES:
        return textwrap.wrap(PATH_NAME.sub("", bound), width)
    return lines


def short_label(label: str) -> str:
    """Return a name for the end of a curve: of many cuts, the numbers."""
    return label if len(label) <= SHORT else PATH_NAME.sub("", label.replace(" (", "\xa0("))


def _noted(label: str, note: str, width: int) -> list[str]:
    return label_lines(label, width) + textwrap.wrap(note, width)


def label_axis(notes: Mapping[str, str]) -> alt.Axis:
    """Return the axis of a chart with one row for each label, which has a note below it.

    The chart needs `with_rows`.
    """
    narrow, wide = (
        json.dumps({name: _noted(name, x, width) for name, x in notes.items()}, ensure_ascii=False)
        for width in (LABEL_WIDTH, WIDE_LABEL)
    )
    lines = f"(wide ? {wide} : {narrow})[datum.label]"
    return alt.Axis(ticks=False, domain=False, labelExpr=lines)


def with_rows(chart: Any, notes: Mapping[str, str]) -> Any:
    """Return a chart with one row for each label, high enough for its lines.

    A wide page sets the parameter `wide` and takes the height from `usermeta` (`page.js`).
    """
    widths = (LABEL_WIDTH, WIDE_LABEL)
    lines = (max(len(_noted(*own, width)) for own in notes.items()) for width in widths)
    narrow, wide = (len(notes) * (6 + 13 * most) for most in lines)
    params = [alt.VariableParameter("wide", value=False)]
    return chart.properties(height=narrow, usermeta={"wide": wide}, params=params)


WIDEST = 8.0
"""An axis ends where the next point is further away than this multiple of it."""


def near_limit(distances: Iterable[float], least: float = 0.0) -> float:
    """Return the greatest distance before a gap, so that no point makes all others one dot."""
    kept = sorted(distances)
    middle = (len(kept) - 1) // 2
    limit = max(kept[middle], least)
    for x in kept[middle:]:
        if x > WIDEST * limit > 0:
            break
        limit = max(limit, x)
    return limit


CONFIGS: dict[str, Any] = json.loads(
    files("lmzoo.lab.analysis.report").joinpath("charts.json").read_text("utf-8")
)
"""Vega's configs, `page` of a picture and `paper` of a figure, and charts without their data."""


def chart_from(name: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a chart of `charts.json` with these data."""
    return alt.LayerChart.from_dict({**CONFIGS[name], "data": {"values": [*rows]}})


def chart_of(rows: Iterable[Mapping[str, Any]]) -> alt.Chart:
    """Return a chart whose data are in its specification."""
    data = alt.InlineData(values=[])
    data.values = [*map(dict, rows)]  # set later, it is not validated, which takes 80 μs a row
    return alt.Chart(data)


def titled(chart: Any, title: str, notes: Sequence[str]) -> Any:
    """Return a chart as wide as its page, with a title and notes."""
    heading = alt.TitleParams(title, subtitle=[*notes], anchor="start")
    fit = alt.AutoSizeParams(type="fit-x", contains="padding")
    return chart.properties(title=heading, width="container", autosize=fit)


def by_verdict(kind: Any, values: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return the encoding of the group of each row; the legend has the groups of these rows."""
    groups = [group for group in GROUPS if any(row["group"] == group for row in rows)]
    encoded = kind("group:N", title=None).legend(alt.Legend(orient="top", title=None))
    return encoded.scale(domain=groups, range=[values[group] for group in groups])


class Hues(NamedTuple):
    """The colours of a study's points, the same in all of its charts."""

    field: str
    """`label`, or `group` where there are many points."""
    colours: Mapping[str, str]
    """Value of the field -> colour, in the order of the legend."""
    groups: Mapping[str, str]
    """Label -> verdict, `reference` or `baseline`, in the order of the ranking."""

    def chart(self, frame: pl.DataFrame) -> alt.Chart:
        """Return a chart of a frame with the column `label`; the column `group` is added."""
        group = pl.col("label").replace_strict(self.groups, default=BASELINE)
        return chart_of(frame.with_columns(group=group).to_dicts())

    def colour(self, labels: Iterable[str] = ()) -> alt.Color:
        """Return the encoding of the colour; the legend has the colours of these points, or all."""
        own = {label if self.field == "label" else self.groups.get(label) for label in labels}
        values = list(self.colours)
        legend = alt.Legend(
            values=[value for value in values if value in own or not own],
            symbolLimit=0, symbolOpacity=1, labelLimit=260, symbolType="circle",
        )  # fmt: skip
        return (
            alt.Color(f"{self.field}:N", title="point" if self.field == "label" else "verdict")
            .scale(domain=values, range=list(self.colours.values()))
            .legend(legend)
        )

    def dash(self) -> alt.StrokeDash:
        """Return the encoding of lines, which does not depend on colours."""
        values = list(self.colours)
        dashes = [DASHES[i % len(DASHES)] for i, _ in enumerate(values)]
        scale = alt.Scale(domain=values, range=dashes)
        return alt.StrokeDash(f"{self.field}:N", scale=scale, legend=None)

    def tooltips(self) -> list[Any]:
        """Return the tooltips that name a point."""
        return [alt.Tooltip("label:N", title="point"), alt.Tooltip("group:N", title="verdict")]

    def opacity(self, most: float = 1.0) -> Any:
        """Return the opacity of a mark; of many points, the reference stands out."""
        rest = most * min(1.0, max(0.35, math.sqrt(MANY / len(self.groups))))
        is_reference = alt.datum.group == REFERENCE
        return alt.when(is_reference).then(alt.value(most)).otherwise(alt.value(rest))


def group_of(row: Mapping[str, Any]) -> str:
    """Return the group of a row of a ranking."""
    if row["reference"]:
        return REFERENCE
    if row["verdict"]:
        return shown_verdict(row["verdict"], confirmed=row["confirmed"])
    if row["is_baseline"]:
        return BASELINE
    return NO_VERDICT


def hues_of(ranked: pl.DataFrame) -> Hues:
    """Return the colours of a study's charts."""
    rows = ranked.filter(pl.col("label").is_not_null()).to_dicts()
    groups = {row["label"]: group_of(row) for row in rows}
    if len(groups) > MANY:
        own = {group: COLOURS[group] for group in GROUPS if group in groups.values()}
        return Hues("group", own, groups)
    palette = iter(PALETTE)
    own = {
        label: COLOURS[group] if group in (REFERENCE, BASELINE) else next(palette)
        for label, group in groups.items()
    }
    return Hues("label", own, groups)
