"""Draw loss against size: the points of a study, and the fitted curves with 95 % bands.

`tools/results.py` draws the figure above a `scaling` table of a results page.
"""

import html
import math
from itertools import groupby
from pathlib import Path
from typing import Any

from scaling_fits import scaling_curves

from lmzoo.lab.analysis.load import load_study

COLOURS = ("#1f6fb2", "#b3541e", "#2a7f4f", "#8a3f9c", "#9a7b00", "#c2326b", "#4a5865")
DARK = ("#7fb8ee", "#f0a06a", "#79c79a", "#d49be3", "#e0c04a", "#f08db1", "#b4c0cb")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 460, 62, 190, 16, 52
LABEL = 19
"""Least distance of two labels in pixels."""


def draw(records: Path, *, by: str = "parameters") -> str:
    """Return the figure as SVG; the size has a logarithmic axis."""
    points = scaling_curves(load_study(records), by=by).points.to_dicts()
    curves = {name: list(rows) for name, rows in groupby(points, lambda row: row["curve"])}
    sizes = [row["size"] for row in points]
    ends = [row[key] for row in points for key in ("fitted_low", "fitted_high", "loss")]
    low, high = min(ends), max(ends)

    def x(size: float) -> float:
        share = math.log(size / min(sizes)) / math.log(max(sizes) / min(sizes))
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(loss: float) -> float:
        return round(TOP + (high - loss) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>Loss against {by}, with fitted curves and 95 % bands</title>", _style(),
    ]  # fmt: skip
    out += _axes(x, y, sizes, low, high, by)
    labels = sorted((y(rows[-1]["fitted"]), i) for i, rows in enumerate(curves.values()))
    heights: dict[int, float] = {}
    for target, i in labels:
        heights[i] = max(target, max(heights.values(), default=-LABEL) + LABEL)
    for i, (name, rows) in enumerate(curves.items()):
        out += _curve(i, name, rows, x, y, heights[i])
    return "\n".join([*out, "</svg>"]) + "\n"


def _style() -> str:
    light, dark = (
        "".join(
            f".c{i}{{stroke:{colour}}} .f{i}{{fill:{colour}}} " for i, colour in enumerate(colours)
        )
        for colours in (COLOURS, DARK)
    )
    return (
        "<style>text{font:15px system-ui,sans-serif;fill:#1d2731} .s{font-size:14px;fill:#4a5865} "
        "polyline{fill:none;stroke-width:2} polygon{fill-opacity:.15} "
        ".g{stroke:#9aa7b3;stroke-width:.6} " + light + "@media (prefers-color-scheme: dark)"
        "{text{fill:#e8edf2} .s{fill:#b4c0cb} " + dark + "}</style>"
    )


def _axes(x: Any, y: Any, sizes: list[float], low: float, high: float, by: str) -> list[str]:
    out = []
    for tenth in range(math.ceil(10 * low), math.floor(10 * high) + 1):
        height = y(tenth / 10)
        out.append(
            f'<line class="g" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>'
        )
        out.append(
            f'<text class="s" x="{LEFT - 8}" y="{height + 5}" text-anchor="end">{tenth / 10:.1f}</text>'
        )
    first, last = math.ceil(math.log10(min(sizes))), math.floor(math.log10(max(sizes)))
    for size in (10**power for power in range(first, last + 1)):
        out.append(
            f'<text class="s" x="{x(size)}" y="{HEIGHT - 28}" text-anchor="middle">{size:,}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    title = f"{by}; the axis up is the loss in nats per token"
    out.append(f'<text class="s" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{title}</text>')
    return out


def _curve(
    i: int, name: str, rows: list[dict[str, Any]], x: Any, y: Any, label: float
) -> list[str]:
    def corners(key: str, order: int = 1) -> str:
        return " ".join(f"{x(row['size'])},{y(row[key])}" for row in rows[::order])

    end = x(rows[-1]["size"])
    return [
        f'<polygon class="f{i}" points="{corners("fitted_low")} {corners("fitted_high", -1)}"/>',
        f'<polyline class="c{i}" points="{corners("fitted")}"/>',
        *(
            f'<circle class="f{i}" cx="{x(row["size"])}" cy="{y(row["loss"])}" r="4"/>'
            for row in rows
        ),
        f'<text class="f{i}" x="{WIDTH - RIGHT + 12}" y="{label + 5}">{html.escape(name)}</text>',
        f'<line class="c{i}" stroke-opacity=".35" x1="{end}" x2="{WIDTH - RIGHT + 8}" '
        f'y1="{y(rows[-1]["fitted"])}" y2="{label}"/>',
    ]
