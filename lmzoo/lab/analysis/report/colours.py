"""How charts tell the points of a study apart: by their own colours, or by their verdicts."""

import itertools
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polars import DataFrame, Series, col

from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.analysis.render import filled
from lmzoo.lab.analysis.verdict_lines import shown_verdict

FOLDER = Path(__file__).parent
CONFIGS: FieldsDict = json.loads((FOLDER / "charts.json").read_text("utf-8"))
"""What each chart has, and Vega's configs: `page` of a picture and `paper` of a figure."""
REFERENCE = "reference"
BASELINE = "baseline"
NO_VERDICT = "no verdict"
GROUPS: dict[str, dict[str, str]] = CONFIGS["groups"]
"""Verdicts, and the points that have none, as tables write them, in the order of plots: colour, a
variable in `page.css` with a light and a dark value; shape, which points to where a verdict is,
`turned` if the highest value is the best; open arrows are signs that no fresh seeds have repeated;
and fill, none where something is open."""
PALETTE: list[str] = CONFIGS["palette"]
"""Colours of points, in the order of the ranking: readable on white and on dark, and apart for
people who see no red, no green or no blue. A colour and the sixth after it, which has the same
dashes, are apart in grey."""
DASHES: list[list[float]] = CONFIGS["dashes"]
HEIGHT = 300
"""Pixels of a chart that has no row for each point."""
MANY = 12
"""Points that have colours and names of their own; of more, a chart shows the verdicts."""


LABEL_WIDTH = 26
"""Letters in a line of a label at the side of a chart."""
WIDE_LABEL = 46
"""And on a wide page."""
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
    # A name of a path and its number stay in one line.
    bound = label.replace(" (", "\xa0(").replace(" +", "\xa0+")
    lines = textwrap.wrap(bound, width) or [""]
    if width < WIDE_LABEL and len(lines) > NARROW_LINES:
        return textwrap.wrap(PATH_NAME.sub("", bound), width)
    return lines


def short_label(label: str) -> str:
    """Return a name for the end of a curve: of many cuts, the numbers."""
    if len(label) <= SHORT:
        return label
    return PATH_NAME.sub("", label.replace(" (", "\xa0("))


def label_rows(notes: Mapping[str, str]) -> FieldsDict:
    """Return the names, the text and the heights of rows: one for each label, a note below it."""
    texts = []
    heights = []
    for width in (LABEL_WIDTH, WIDE_LABEL):
        lines = {
            label: label_lines(label, width) + textwrap.wrap(note, width)
            for label, note in notes.items()
        }
        texts.append(json.dumps(lines, ensure_ascii=False))
        most = max(map(len, lines.values()))
        heights.append(len(notes) * (6 + 13 * most))
    narrow, wide = heights
    text = f"(wide ? {texts[1]} : {texts[0]})[datum.label]"
    return {"names": list(notes), "text": text, "narrow": narrow, "wide": wide}


WIDEST = 8.0
"""An axis ends where the next point is further away than this multiple of it."""


def near_limit(distances: Iterable[float], least: float = 0.0) -> float:
    """Return the greatest distance before a gap, so that no point makes all others one dot."""
    kept = sorted(distances)
    middle = (len(kept) - 1) // 2
    limit = max(kept[middle], least)
    for distance in kept[middle:]:
        if distance > WIDEST * limit > 0:
            break
        limit = max(limit, distance)
    return limit


def scale_of(values: Series) -> FieldsDict:
    """Return a scale that holds these values and not 0."""
    scale: FieldsDict = {"zero": False}
    low: Any = values.min()
    if low == values.max():
        # Vega rounds the label of an axis that has a single value: 1.5 would stand at "2".
        room = 1.0
        if low:
            room = abs(low) / 10
        scale["domain"] = [low - room, low + room]
    return scale


def chart_of(form: str, title: str, notes: Sequence[str], **values: Any) -> FieldsDict:
    """Return the specification of Vega-Lite of a template, filled in, as wide as its page."""
    text = filled(FOLDER / f"{form}.json", height=HEIGHT, **values)
    content = json.loads(text)
    heading = {"text": title, "subtitle": list(notes), "anchor": "start"}
    return CONFIGS["base"] | content | {"title": heading}


def by_verdict(rows: Sequence[Fields], shape: str = "shape") -> FieldsDict:
    """Return the encodings of the groups of rows: stroke, shape and fill, with one legend."""
    shown = {row["group"] for row in rows}
    groups = {name: group for name, group in GROUPS.items() if name in shown}
    encodings = {}
    for channel, kind in {"stroke": "colour", "shape": shape, "fill": "fill"}.items():
        values = [group[kind] for group in groups.values()]
        encodings[channel] = {
            "field": "group",
            "type": "nominal",
            "title": None,
            "legend": {"orient": "top", "title": None},
            "scale": {"domain": list(groups), "range": values},
        }
    return encodings


class Hues(NamedTuple):
    """The colours of a study's points, the same in all of its charts."""

    field: str
    """`label`, or `group` where there are many points."""
    colours: Mapping[str, str]
    """Value of the field -> colour, in the order of the legend."""
    groups: Mapping[str, str]
    """Label -> verdict, `reference` or `baseline`, in the order of the ranking."""

    def rows(self, frame: DataFrame) -> list[FieldsDict]:
        """Return the rows of a frame with the column `label`; the column `group` is added."""
        group = col("label").replace_strict(self.groups, default=BASELINE)
        return frame.with_columns(group=group).to_dicts()

    def legend(self, labels: Iterable[str] = ()) -> list[str]:
        """Return the values of the field that a legend has: those of these points, or all."""
        own = set(labels)
        if self.field == "group":
            own = {self.groups.get(label, "") for label in own}
        return [value for value in self.colours if value in own or not own]

    @property
    def dashes(self) -> Sequence[Sequence[float]]:
        """The dashes of the lines of each value of the field."""
        return list(itertools.islice(itertools.cycle(DASHES), len(self.colours)))

    @property
    def faint(self) -> float:
        """The opacity of marks; of many points, the reference stands out."""
        share = math.sqrt(MANY / len(self.groups))
        return min(1.0, max(0.35, share))


def group_of(row: Fields) -> str:
    """Return the group of a row of a ranking."""
    if row["reference"]:
        return REFERENCE
    if row["verdict"]:
        return shown_verdict(row["verdict"], confirmed=row["confirmed"])
    if row["is_baseline"]:
        return BASELINE
    # A point of a single seed has no verdict yet, and is no baseline.
    return NO_VERDICT


def hues_of(ranked: DataFrame) -> Hues:
    """Return the colours of a study's charts."""
    rows = ranked.drop_nulls("label").to_dicts()
    groups = {row["label"]: group_of(row) for row in rows}
    # So many colours would look alike.
    if len(groups) > MANY:
        known = set(groups.values())
        colours = {name: group["colour"] for name, group in GROUPS.items() if name in known}
        return Hues("group", colours, groups)
    palette = iter(PALETTE)
    colours = {}
    for label, group in groups.items():
        # No variant should look like a baseline.
        if group in (REFERENCE, BASELINE):
            colours[label] = GROUPS[group]["colour"]
        else:
            colours[label] = next(palette)
    return Hues("label", colours, groups)
