"""Heat maps of effects: each switch on the diagonal, interactions of pairs off the diagonal.

One map for each cell, all with the same colour scale: blue where the loss falls, orange where it
rises, as the verdicts. An interval that includes zero has its number in brackets. A cell without
colour has no mutants to estimate it from. A number is black or white, by the colour of its square.
"""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import altair as alt
import polars as pl

from lmzoo.base.errors import UserError, writing
from lmzoo.lab.analysis.formatting import format_number
from lmzoo.lab.analysis.report.colours import NOTE_WIDTH, readable_on

COLOURS = ["#0068b3", "#f4f6f8", "#b8430a"]
"""Colours of the lowest effect, of zero and of the highest one."""
PAGE_COLOURS = ["var(--better)", "var(--soft)", "var(--worse)"]
"""The same on a page, light or dark."""
PADDING = 20
"""Pixels around the maps: a reader's font may be wider than the one that was measured."""
SQUARE = 50
"""Side of a square in pixels, before scaling."""
FORMATS = (".png", ".svg", ".html")


def heat_maps(
    frames: Sequence[pl.DataFrame], title: str, *, page: bool = False
) -> alt.VConcatChart:
    """Return the maps of all cells, one below the other; a page has colours of its own."""
    bound = max(abs(v) for frame in frames for v in frame["effect"].drop_nulls()) or 1.0
    notes = [
        "diagonal: mean change of the test loss (nats per token) by a switch, over all pairs "
        "of points that differ in it only",
        "off the diagonal: by how much the second switch changes the effect of the first",
        "in brackets: the 95 % interval includes zero",
    ]
    lines = notes if page else [line for note in notes for line in wrap(note, NOTE_WIDTH)]
    heading = alt.TitleParams(title, subtitle=lines, anchor="start")
    colour = alt.Color("value:Q", title="nats").scale(
        range=PAGE_COLOURS if page else COLOURS,
        domain=[-bound, 0, bound],
        interpolate=alt.ScaleInterpolateEnum("rgb"),
    )
    maps = alt.vconcat(*(_map(frame, colour) for frame in frames), padding=5 if page else PADDING)
    return maps.properties(title=heading).resolve_scale(color="shared")


def save_figure(chart: Any, path: Path) -> None:
    """Write a chart in the format of the file's suffix; an HTML page needs no network.

    Raises:
        UserError: The suffix is unknown.
    """
    if path.suffix not in FORMATS:
        raise UserError(
            f"no figure format {path.suffix!r} of {path.name}; known: {', '.join(FORMATS)}"
        )
    options = {"inline": True} if path.suffix == ".html" else {"scale_factor": 2}
    with writing(path):
        chart.save(str(path), **options)


def heat_map_squares(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return one square for each switch and two for each pair, with value and text."""
    squares = []
    for row in frame.drop_nulls("effect").to_dicts():
        first, second = row["first"], row["second"] or row["first"]
        excludes_zero = row["effect_low"] is not None and row["effect_low"] * row["effect_high"] > 0
        value = format_number(round(row["effect"], 2) + 0.0, "+.2f")
        shown = {
            "text": value if excludes_zero else f"({value})",
            "value": round(row["effect"], 9),  # further digits depend on the machine
            "low": row["effect_low"],
            "high": row["effect_high"],
            "pairs": row["count"],
        }
        for x, y in {(first, second), (second, first)}:
            squares.append({"x": x, "y": y, **shown})
    return sorted(squares, key=lambda square: (square["y"], square["x"]))


def _map(frame: pl.DataFrame, colour: alt.Color) -> Any:
    order = frame.filter(pl.col("second").is_null())["first"].to_list()
    base = alt.Chart(alt.InlineData(values=heat_map_squares(frame))).encode(
        x=alt.X("x:N", sort=order, title=None).axis(labelAngle=-45).scale(domain=order),
        y=alt.Y("y:N", sort=order, title=None).scale(domain=order),
        tooltip=[
            alt.Tooltip("x:N", title="switch"),
            alt.Tooltip("y:N", title="with"),
            alt.Tooltip("value:Q", title="nats", format="+.4f"),
            alt.Tooltip("low:Q", format="+.4f"),
            alt.Tooltip("high:Q", format="+.4f"),
            alt.Tooltip("pairs:Q", title="estimates averaged"),
        ],
    )
    squares = base.mark_rect(stroke="#8888", strokeWidth=0.5).encode(color=colour)
    labels = base.mark_text(fontSize=12).encode(text="text:N", color=readable_on("color", "value"))
    size = {"step": SQUARE}
    return alt.layer(squares, labels, title=frame["cell"][0], width=size, height=size)
