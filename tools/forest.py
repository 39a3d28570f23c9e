"""Draw the forest plots of the results pages from the tables on the same page (`tools/results.py`).

A page asks for a figure with `![...](NAME.svg)` above a ranking table. The figure shows the
difference of every point to the reference, in nats, with its interval, in the colour of its verdict,
and the margin as a band.
"""

import html
import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from lmzoo.analysis.charts.colours import GROUPS, PRINTED
from lmzoo.statistics.compared import MARGIN

DARK = {
    **{"better": "#66b7ff", "better-open": "#a3cdf5", "negligible": "#45c9a5"},
    **{"worse-open": "#f0b98a", "worse": "#ff9a5c", "undecided": "#9aa6b2"},
}
"""The colours of `lmzoo/analysis/report/page.css` on a dark page."""


def _rules(colours: Mapping[str, str]) -> str:
    return "".join(
        f".{name}{{stroke:{colour}}} circle.{name}{{fill:{colour}}} "
        for name, colour in colours.items()
        if name in DARK
    )


STYLE = f"""<style>
text{{font:17px system-ui,sans-serif;fill:#1d2731}} .s{{font-size:14px;fill:#4a5865}}
line{{stroke:#5b6b7a;stroke-width:1.6}} .z{{stroke:#9aa7b3;stroke-dasharray:4 3;stroke-width:1}}
circle{{fill:#5b6b7a}} .m{{fill:#8593a0;opacity:.16}} {_rules(dict(zip(GROUPS, PRINTED, strict=True)))}
@media (prefers-color-scheme: dark){{text{{fill:#e8edf2}} .s{{fill:#b4c0cb}} line{{stroke:#a9b6c2}} circle{{fill:#a9b6c2}}
{_rules(DARK)}}}
</style>"""
LEFT, WIDTH, ROW = 270, 620, 30
LINE = 36
"""Characters of a line of a label that needs several, in the small font."""


class Point(NamedTuple):
    """A row of a ranking; a reference has difference 0."""

    label: str
    difference: float
    half: float
    verdict: str
    """One of `VERDICTS`; "" for the reference."""


def read_points(table: str) -> list[Point]:
    """Return the points of a Markdown ranking that have a difference, without its baselines."""
    lines = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()
    ]
    columns = {name: i for i, name in enumerate(lines[0])}
    points = []
    for cells in lines[2:]:
        label = cells[columns["point"]].replace("\\", "")
        text = cells[columns["difference"]].replace("−", "-")
        numbers = re.findall(r"[-+]?\d+\.\d+", text)
        if "verdict" in columns and not cells[columns["verdict"]] and text != "reference":
            continue  # a baseline, which would make the scale too coarse
        if text == "reference" or numbers:
            difference, half = ([float(n) for n in numbers] + [0.0, 0.0])[:2]
            words = cells[columns["verdict"]] if "verdict" in columns else ""
            verdict = words.split(" (")[0] + "-open" * ("(size open)" in words)
            points.append(Point(label, difference, half, verdict))
    return points


def draw(points: list[Point], margin: float = MARGIN) -> str:
    """Return the figure as SVG: one line per point, in the colour of its verdict."""
    low = min(0.0, *(p.difference - p.half for p in points))
    high = max(0.0, *(p.difference + p.half for p in points))
    pad = 0.04 * (high - low)
    low, high = low - pad, high + pad
    labels = [_lines(point.label) for point in points]
    tops = list(accumulate((max(ROW, 14 * len(lines) + 8) for lines in labels), initial=0))
    height = tops[-1] + 54

    def x(value: float) -> float:
        return round(LEFT + (value - low) / (high - low) * (WIDTH - LEFT - 20), 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Differences to the reference with 95 % intervals</title>", STYLE,
        f'<rect class="m" x="{x(max(low, -margin))}" y="6" height="{height - 48}" '
        f'width="{round(x(min(high, margin)) - x(max(low, -margin)), 1)}"/>',
        f'<line class="z" x1="{x(0)}" x2="{x(0)}" y1="6" y2="{height - 42}"/>',
    ]  # fmt: skip
    for i, point in enumerate(points):
        y = 3 + (tops[i] + tops[i + 1]) // 2
        ends = point.difference - point.half, point.difference + point.half
        kind = point.verdict
        lines = labels[i]
        small = ' class="s"' if len(lines) > 1 or len(lines[0]) > 30 else ""
        out += [
            f'<text{small} x="{LEFT - 12}" y="{y + 6 + 14 * j - 7 * (len(lines) - 1)}" '
            f'text-anchor="end">{html.escape(line)}</text>'
            for j, line in enumerate(lines)
        ]
        out.append(f'<line class="{kind}" x1="{x(ends[0])}" x2="{x(ends[1])}" y1="{y}" y2="{y}"/>')
        out.append(f'<circle class="{kind}" cx="{x(point.difference)}" cy="{y}" r="5"/>')
    for value in (low + pad, 0.0, high - pad):
        if value == 0.0 or abs(x(value) - x(0)) > 60:
            out.append(
                f'<text class="s" x="{x(value)}" y="{height - 24}" text-anchor="middle">{value:+.2f}</text>'
            )
    middle = (LEFT + WIDTH - 20) / 2
    out.append(
        f'<text class="s" x="{middle}" y="{height - 4}" text-anchor="middle">difference in nats per token; right is worse; band: ±{margin:g}</text></svg>'
    )
    return "\n".join(out) + "\n"


def _lines(label: str) -> list[str]:
    """Return the lines of a label, broken between cuts."""
    return textwrap.wrap(label.replace(" (", "\xa0(").replace(" +", "\xa0+"), LINE)


ASKED = re.compile(
    r"^!\[[^]]*\]\(([\w-]+-forest\.svg)\).*?^(\| rank .*?)\n\n", re.DOTALL | re.MULTILINE
)


def figures(page: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the SVG of every figure that a page asks for."""
    for name, table in ASKED.findall(page + "\n\n"):
        yield name, draw(read_points(table))
