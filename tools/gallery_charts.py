"""Charts of the gallery as SVG: learning curves and tried settings, from a study's records.

The colours follow the reader's setting and have a meaning: the reference is dark, points that are
worse are orange, better ones blue, others grey. Orange and blue are told apart by colour-blind
readers.
"""

import html
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

STYLE = """<style>
text{font:13px system-ui,sans-serif;fill:#3c4955}
path,line{fill:none;stroke:#5b6b7a;stroke-width:1.8} circle{fill:#5b6b7a;stroke:#5b6b7a}
.worse{stroke:#b3541e} circle.worse{fill:#b3541e} .better{stroke:#1f6fb2}
circle.better{fill:#1f6fb2} .reference{stroke:#0f151b} path.reference{stroke-width:3}
circle.reference{fill:#0f151b} circle.open{fill:none} line{stroke:#d5dbe1;stroke-width:1}
path.lead{stroke-width:1;opacity:.55}
@media (prefers-color-scheme: dark){text{fill:#c3cdd6} path{stroke:#93a2b0}
circle{fill:#93a2b0;stroke:#93a2b0} .worse{stroke:#f0a06a} circle.worse{fill:#f0a06a}
.better{stroke:#7fb8ee} circle.better{fill:#7fb8ee} .reference{stroke:#fff}
circle.reference{fill:#fff} circle.open{fill:none} line{stroke:#3a4653}}
</style>"""
WIDTH, HEIGHT = 500, 400
LEFT, RIGHT, TOP, BOTTOM = 50, 206, 10, 46
LINE, COLUMNS = 14, 26
"""Height of a line of a label, in pixels, and its letters."""
TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
ALL = "nats per token above the entropy"


class Scale(NamedTuple):
    """The vertical scale, which is logarithmic."""

    low: float
    high: float

    def __call__(self, excess: float) -> float:
        """Return the place of an excess loss, in pixels from the top."""
        share = math.log(self.high / excess) / math.log(self.high / self.low)
        return TOP + share * (HEIGHT - TOP - BOTTOM)

    def axis(self, right: float) -> Iterator[str]:
        """Yield lines and numbers."""
        for tick in (t for t in TICKS if self.low <= t <= self.high):
            y = self(tick)
            yield (
                f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
            )


def curves(frame: pl.DataFrame, groups: Mapping[str, str], floor: float) -> str:
    """Return the learning curves of the confirm runs, with a label at each end.

    Args:
        frame: the columns label, epoch, loss of `learning_curves`.
        groups: label -> reference, or verdict.
        floor: the entropy of the corpus in nats per token.
    """
    y, end = _scale(frame["loss"], floor), WIDTH - RIGHT
    last = frame["epoch"].to_list()[-1]

    def x(epoch: float) -> float:
        return LEFT + (epoch - 1) / (last - 1) * (end - LEFT)

    out = [*y.axis(end)]
    for epoch in range(1, last + 1, 3):
        out.append(_text(f"{epoch}", x(epoch), HEIGHT - 26, "middle"))
    ends: list[tuple[float, str]] = []
    order = sorted(groups, key=lambda label: groups[label] == "reference")  # it is drawn on top
    for label in order:
        part = frame.filter(pl.col("label") == label).sort("epoch")
        places = [
            f"{x(epoch):.1f} {y(loss - floor):.1f}"
            for epoch, loss in part.select("epoch", "loss").iter_rows()
        ]
        if places:
            out.append(f'<path class="{groups[label]}" d="M{" L".join(places)}"/>')
            ends.append((y(part["loss"][-1] - floor), label))
    out += _end_labels(sorted(ends), groups, end)
    return _svg("Validation loss of each point by epoch, mean of its seeds", out, "epoch", end)


def settings(frame: pl.DataFrame, groups: Mapping[str, str], floor: float) -> str:
    """Return the last loss of every tried value; a ring is the choice of a point.

    Args:
        frame: the columns label, value, loss, status, chosen of `tuned_settings`.
        groups: label -> reference, or verdict.
        floor: the entropy of the corpus in nats per token.
    """
    end, found = WIDTH - 8, frame.drop_nulls("loss")
    y, values = _scale(found["loss"], floor), sorted(set(frame["value"].to_list()))
    room = (end - LEFT) / len(values)
    out = [*y.axis(end)]
    for i, value in enumerate(values):
        out.append(_text(f"{value:.2g}", LEFT + (i + 0.5) * room, HEIGHT - 26, "middle"))
    labels = [*groups]
    for row in found.sort("label", "value").to_dicts():
        shift = (labels.index(row["label"]) + 0.5) / len(labels) - 0.5
        x = LEFT + (values.index(row["value"]) + 0.5 + 0.8 * shift) * room
        place = f'cx="{x:.1f}" cy="{y(row["loss"] - floor):.1f}"'
        group = groups[row["label"]]
        hollow = " open" if row["status"] == "pruned" else ""
        out.append(f'<circle class="{group}{hollow}" {place} r="2.8"/>')
        if row["chosen"]:
            out.append(f'<circle class="{group} open" {place} r="6"/>')
    return _svg("Loss of every tried learning rate", out, "learning rate", end)


def _scale(losses: pl.Series, floor: float) -> Scale:
    excess = [loss - floor for loss in losses.to_list()]
    return Scale(min(excess) / 1.06, max(excess) * 1.06)


def _end_labels(
    ends: Sequence[tuple[float, str]], groups: Mapping[str, str], end: float
) -> Iterator[str]:
    """Yield a label for each end of a curve; the labels do not overlap."""
    texts = [textwrap.wrap(label.replace(" (", "\xa0("), COLUMNS) for _, label in ends]
    heights = [LINE * len(lines) + 5 for lines in texts]
    top = max(TOP, min(ends[0][0], HEIGHT - BOTTOM + 22 - sum(heights)))
    for (y, label), lines, height in zip(ends, texts, heights, strict=True):
        middle = top + height / 2
        yield f'<path class="{groups[label]} lead" d="M{end + 1} {y:.1f} L{end + 13} {middle:.1f}"/>'
        for i, line in enumerate(lines):
            yield _text(line, end + 17, top + 13 + LINE * i)
        top += height


def _text(text: str, x: float, y: float, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {place}>{html.escape(text)}</text>"


def _svg(title: str, parts: Iterable[str], axis: str, end: float) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    names = [
        _text(axis, (LEFT + end) / 2, HEIGHT - 8, "middle"),
        f'<g transform="translate(13 {(TOP + HEIGHT - BOTTOM) // 2}) rotate(-90)">'
        f"{_text(ALL, 0, 0, 'middle')}</g>",
    ]
    return "\n".join([head, f"<title>{title}</title>", STYLE, *parts, *names, "</svg>"]) + "\n"
