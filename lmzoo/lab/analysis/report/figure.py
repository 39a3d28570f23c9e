"""A figure of a study for a paper: forest plot, learning curves, searched settings.

It has the width that is asked for, as PDF, SVG and PNG, and text of 8 points. Its title is the
caption's. Verdicts have shapes and fills, and lines have dashes, so that a grey print can be read.
"""

import contextlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vl_convert
from polars import DataFrame

from lmzoo.base.errors import UserError, near, writing
from lmzoo.base.plain import FieldsDict
from lmzoo.base.streams import echo, printable
from lmzoo.lab.analysis.load import StudyFolder, load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import Report, printable_parts, sentence
from lmzoo.lab.analysis.report.colours import CONFIGS, FOLDER, HEIGHT
from lmzoo.lab.analysis.report.curve_charts import ENDS, curve_charts
from lmzoo.lab.analysis.report.forest import forest_chart, forest_charts
from lmzoo.lab.analysis.report.two_costs import NAME, two_costs_chart

INCH = 96
"""Pixels of an inch in a specification."""
WRITERS = {
    ".pdf": lambda spec: _pdf(vl_convert.vegalite_to_svg(spec)),
    ".svg": vl_convert.vegalite_to_svg,
    # vl_convert takes a pixel for 1/72 of an inch in a PNG.
    ".png": lambda spec: vl_convert.vegalite_to_png(spec, ppi=300, scale=72 / INCH),
}
UNITS = {
    "in": 1.0,
    "cm": 1 / 2.54,
    "mm": 1 / 25.4,
    "pt": 1 / 72,
}
"""Unit of a width -> inches."""
NARROW = 5.0
"""Inches below which a figure has the layout of one column."""
LEAST = 1.0
MOST = 40.0
"""Inches that are possible."""
OTHER_SCRIPTS = re.compile("[\u0590-\u1fff\u2e80-\U0010ffff]")
"""Letters that few fonts have."""


def write_figure(study: Path, out: Path, width: str, unit: str, kind: str = "") -> str:
    """Write a figure and return its caption.

    Args:
        study: its folder, or its file of records.
        out: the file; its name says the kind of the figure, as `forest.pdf`, unless `kind` does.
        width: as "3.3in", "84mm" or "240pt".
        unit: as `lmzoo.rank` has it.
        kind: forest, curves, seeds, cost-parameters, cost-flops, cost-seconds, factors,
            importance, tuning, tuning-FIELD or after-training.

    A `UserError` says that there is no such figure or format, or that the study lacks its data.
    """
    _check_suffix(out)
    inches = _inches(width)
    folder = load_study(study)
    report = study_ranking(folder, unit=unit)
    charts = figures(folder, report.frame)
    if not kind:
        kind = out.stem
    if kind not in charts:
        hint = f"{near(kind, charts)}; give one with --kind"
        raise UserError(f"no figure {kind!r} of this study{hint}")
    return _written(charts[kind], out, inches, (report.caption,) + report.warnings)


def write_forest(report: Report, table: DataFrame, out: Path, width: str) -> str:
    """Write the forest plot of variants that `judge` compares, and return its caption.

    `table` has them with the columns of a ranking. A `UserError` says what is wrong with the file,
    or that there are no differences.
    """
    _check_suffix(out)
    chart = forest_chart(table)
    if chart is None:
        raise UserError("no variant has a difference, so there is nothing to draw")
    return _written(chart, out, _inches(width), report.heading[:1] + report.warnings)


def _check_suffix(out: Path):
    if out.suffix not in WRITERS:
        raise UserError(f"no format {out.suffix!r} of {out.name}; known: {', '.join(WRITERS)}")


def _written(chart: Any, out: Path, inches: float, facts: Sequence[str]) -> str:
    """Write a chart, and return its caption, which ends with these facts."""
    # Control characters end the process of vl_convert.
    spec = printable_parts(chart)
    title = spec.pop("title")
    said = [f"{title['text']}: {'; '.join(title.get('subtitle', ()))}"]
    said += facts
    caption = printable(" ".join(map(sentence, said)))
    text = json.dumps(spec, ensure_ascii=False)
    letters = sorted(set(OTHER_SCRIPTS.findall(text)))
    # An SVG is drawn with the reader's fonts.
    if letters and out.suffix != ".svg":
        some = " ".join(letters[:8])
        echo(f"{out} shows empty boxes where no font of this machine has {some}", err=True)
    content = WRITERS[out.suffix](_printed(spec, inches))
    if isinstance(content, str):
        content = content.replace(">", f"><desc>{html.escape(caption)}</desc>", 1).encode()
    with writing(out):
        out.write_bytes(content)
    return caption


def _pdf(svg: str) -> bytes:
    """Return a drawing as PDF. The library takes a pixel for a point, so its size is in points."""
    head, end, rest = svg.partition(">")
    head = re.sub(
        r' (width|height)="([\d.]+)"',
        lambda own: f' {own[1]}="{float(own[2]) * 72 / INCH}"',
        head,
    )
    return vl_convert.svg_to_pdf(head + end + rest)


def _inches(width: str) -> float:
    """Return a width in inches; a `UserError` says that it is none."""
    inches = 0.0
    found = re.fullmatch(rf"([\d.]+) ?({'|'.join(UNITS)})", width.strip())
    if found is not None:
        with contextlib.suppress(ValueError):  # 1.2.3
            inches = float(found[1]) * UNITS[found[2]]
    if not LEAST <= inches <= MOST:
        limits = f"{LEAST:g} to {MOST:g} inches"
        raise UserError(f"--width {width!r} is no width; give {limits}, as 3.3in, 84mm or 240pt")
    return inches


def figures(folder: StudyFolder, ranked: DataFrame) -> FieldsDict:
    """Return name -> chart: forest, curves, tuning of each field, after-training."""
    charts: FieldsDict = {}
    for i, chart in enumerate(forest_charts(ranked)):
        charts[f"forest{i or ''}"] = chart
    for name, chart in curve_charts(folder, ranked).items():
        charts[name] = chart
        if name.startswith("tuning-"):
            charts.setdefault("tuning", chart)
    two_costs = two_costs_chart(folder, ranked)
    if two_costs is not None:
        charts[NAME] = two_costs
    return charts


def _printed(spec: FieldsDict, inches: float) -> FieldsDict:
    """Return a specification for paper: its width, its colours and its legends."""
    width = round(INCH * inches)
    spec |= {"width": width, "config": CONFIGS["paper"]}
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    is_narrow = inches < NARROW
    extra = spec.get("usermeta", {})
    wide = extra.get("wide")
    named = ENDS in extra and not is_narrow
    if spec.get("height") == HEIGHT and not named:
        spec["height"] = 220
    elif wide and not is_narrow:
        spec["height"] = wide
        spec["params"] = [{"name": "wide", "value": True}]
    if not named:
        spec["layer"] = [layer for layer in spec["layer"] if ENDS not in layer.get("name", "")]
    room = width - 40  # the title of the legend
    if wide:
        room = width - 140  # labels
    encodings = [layer["encoding"] for layer in spec["layer"]]
    lined = any("strokeDash" in own for own in encodings)
    for own in encodings:
        # Curves that have names at their ends need no legend of the points.
        if named and own.get("color", {}).get("title") == "point":
            for channel in own.keys() & {"color", "strokeDash"}:
                own[channel]["legend"] = None
        for channel in ("color", "stroke", "fill", "shape"):
            legend = own.get(channel, {}).get("legend")
            if legend is None:
                continue
            longest = max(map(len, own[channel]["scale"]["domain"]))
            fitting = int(room // (34 + 6.4 * longest))
            legend |= {"orient": "bottom", "columns": max(1, fitting)}
            # In a grey print, the dashes distinguish the lines.
            if lined and channel == "color":
                legend |= {"symbolType": "stroke", "symbolSize": 300, "symbolStrokeWidth": 2}
    # The first block of the page has the light colours.
    css = (FOLDER / "page.css").read_text("utf-8").partition("}")[0]
    colours = dict(re.findall(r"(--[\w-]+): (#\w+)", css))

    def light(variable: re.Match[str]) -> str:
        return colours.get(variable[1], variable[0])

    # A file alone has no page that defines the variables.
    return json.loads(re.sub(r"var\((--[\w-]+)\)", light, json.dumps(spec)))
