"""A figure of a study for a paper: forest plot, learning curves, searched settings.

It is as wide as one or two columns, without a title, which is the caption's: `caption` returns its
text. Verdicts have shapes and lines have dashes, so that a grey print can be read.
"""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert

from lmzoo.base.errors import UserError, near, writing
from lmzoo.base.streams import printable
from lmzoo.lab.analysis.load import StudyFolder, load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import sentence
from lmzoo.lab.analysis.report.curve_charts import ENDS, curve_charts
from lmzoo.lab.analysis.report.forest import forest_charts

WRITERS = {
    ".pdf": vl_convert.vegalite_to_pdf,
    ".svg": vl_convert.vegalite_to_svg,
    ".png": lambda spec: vl_convert.vegalite_to_png(spec, ppi=300, scale=1.0),
}
WIDTHS = {1: 320, 2: 680}
"""Columns -> pixels of 1/96 inch: 3.3 and 7.1 inches."""
FOR_A_SCREEN = "choose a point"
"""The beginning of a note about the pointer."""
DASHES = [[1, 0], [4, 2], [1, 1.5], [6, 2, 1, 2], [8, 3], [2, 2]]
SMALL = {"labelFontSize": 10, "titleFontSize": 10, "titleFontWeight": "normal"}
CONFIG = {
    "background": "white",
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {**SMALL, "labelLimit": 280},
    "axisXQuantitative": {"tickCount": 5, "labelOverlap": "greedy"},
    "legend": {
        **SMALL,
        **{"orient": "bottom", "titleOrient": "left", "labelLimit": 250},
        "layout": {"bottom": {"direction": "vertical", "anchor": "start"}},
    },
}


def write_figure(study: Path, out: Path, columns: int, unit: str) -> str:
    """Write the figure that the name of the file says, as `forest.pdf`; return its caption.

    A `UserError` says that there is no such figure or format, or that the study lacks its data.
    """
    if out.suffix not in WRITERS:
        raise UserError(f"no format {out.suffix!r} of {out.name}; known: {', '.join(WRITERS)}")
    if columns not in WIDTHS:
        raise UserError(f"--columns {columns}: give 1 or 2, the columns of the paper")
    report = study_ranking(study, unit=unit)
    charts = figures(load_study(study), report.frame)
    if out.stem not in charts:
        raise UserError(f"no figure {out.stem!r} of this study{near(out.stem, charts)}")
    spec = _printable(charts[out.stem].to_dict())
    title = spec.pop("title")
    content = WRITERS[out.suffix](_printed(spec, columns))
    with writing(out):
        out.write_bytes(content.encode() if isinstance(content, str) else content)
    notes = [note for note in title.get("subtitle", ()) if not note.startswith(FOR_A_SCREEN)]
    said = (f"{title['text']}: {'; '.join(notes)}.", report.caption, *report.warnings)
    return " ".join(map(sentence, said))


def _printable(value: Any) -> Any:
    """Return a part of a chart without control characters, which end the process of vl_convert."""
    if isinstance(value, dict):
        return {_printable(name): _printable(own) for name, own in value.items()}
    if isinstance(value, list):
        return [_printable(own) for own in value]
    return printable(value) if isinstance(value, str) else value


def figures(folder: StudyFolder, ranked: pl.DataFrame) -> dict[str, Any]:
    """Return name -> chart: forest, curves, tuning of each field."""
    charts = {f"forest{i or ''}": chart for i, chart in enumerate(forest_charts(ranked))}
    for name, chart in curve_charts(folder, ranked).items():
        own = {"learning": "curves"}.get(name, name).replace("setting-", "tuning-")
        charts[own] = chart
        if own.startswith("tuning-"):
            charts.setdefault("tuning", chart)
    return charts


def _printed(spec: dict[str, Any], columns: int) -> dict[str, Any]:
    """Return a specification for paper: its width, its colours and its dashes."""
    spec |= {"width": WIDTHS[columns], "config": CONFIG}
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    wide = spec.get("usermeta", {}).get("wide")
    named = ENDS in spec.get("usermeta", {}) and columns > 1
    if wide is None and not named:
        spec["height"] = 220
    elif wide and columns > 1:
        spec["height"] = wide
        spec["params"] = [{"name": "wide", "value": True}]
    if not named:
        spec["layer"] = [layer for layer in spec["layer"] if ENDS not in layer.get("name", "")]
    lined = any(layer["mark"]["type"] == "line" for layer in spec["layer"])
    for layer in spec["layer"]:
        own = layer["encoding"]
        if named and own.get("color", {}).get("title") == "point":
            own["color"]["legend"] = None
        for channel in ("color", "shape"):
            if (legend := own.get(channel, {}).get("legend")) is not None:
                longest = max(map(len, own[channel]["scale"]["domain"]))
                room = WIDTHS[columns] - (140 if wide else 40)  # labels, or the title of the legend
                legend |= {"orient": "bottom", "columns": max(1, room // (32 + 6 * longest))}
                if lined and channel == "color":
                    legend |= {"symbolType": "stroke", "symbolSize": 300, "symbolStrokeWidth": 2}
        if layer["mark"]["type"] == "line":
            values = own["color"]["scale"]["domain"]
            dashes = [DASHES[i % len(DASHES)] for i, _ in enumerate(values)]
            own["strokeDash"] = own["color"] | {"scale": {"domain": values, "range": dashes}}
    light = files("lmzoo.lab.analysis.report").joinpath("page.css").read_text("utf-8")
    colours = dict(re.findall(r"(--[\w-]+): (#\w+)", light.partition("}")[0]))
    text = re.sub(r"var\((--[\w-]+)\)", lambda own: colours.get(own[1], own[0]), json.dumps(spec))
    return json.loads(text)
