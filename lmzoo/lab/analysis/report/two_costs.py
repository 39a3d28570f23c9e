"""The chart of the two costs of a cut: after training, and in a model trained without the part."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from lmzoo.lab.analysis.after_training import add_after_training, has_ablations
from lmzoo.lab.analysis.formatting import UNITS
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.report.colours import by_verdict, chart_of, group_of

NAME = "after-training"
ROOM = 1.25
"""An axis is longer than its greatest number."""
LINES = 28
"""Lines of text that fit above each other in the height of a chart."""
SIDES: dict[Any, int] = {"left": 6, "right": -6}
"""Alignment of a name -> pixels to the interval that it stands beside."""
COSTS = ("difference", "after_training")
TICKS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
NUMBERS = re.compile(r"\((\d+)\)")


def two_costs_chart(folder: StudyFolder, ranked: pl.DataFrame) -> Any:
    """Return the chart of a study whose trained models were cut; None for another one."""
    if not has_ablations(folder):
        return None
    both = add_after_training(ranked, folder).drop_nulls(["after_training", "difference"])
    rows = [
        {
            **{name: row[name] for name in both.columns if name.startswith(("diff", "after"))},
            **{"label": row["label"], "name": _name(row["label"]), "group": group_of(row)},
        }
        for row in both.filter(~pl.col("reference")).iter_rows(named=True)
    ]
    if not rows:
        return None
    margin = both["margin"].item(0)
    ends = [_ends(rows, name) for name in COSTS]
    low = min(end for end, _ in ends)
    _place_names(rows, margin, ends[0])
    metric = both["metric"].item(0)
    notes = [
        "above the line, a cut hurts the trained model more than a model trained without the part",
        f"95 % intervals; both axes are linear within ±{margin:g} and logarithmic beyond",
    ]
    return chart_of(
        "two_costs", "Cut after training, or trained without", notes,
        rows=rows,
        low=low,
        ends=[high for _, high in ends],
        margin=margin,
        ticks=[0, *(x for tick in TICKS for x in (-tick, tick))],
        unit=UNITS.get(metric, metric),
        sides=SIDES,
        stroke=by_verdict("colour", rows),
        shape=by_verdict("shape", rows),
        fill=by_verdict("fill", rows),
    )  # fmt: skip


def _ends(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[float, float]:
    """Return the ends of an axis, which holds 0 and all intervals."""
    own = [row[each] for row in rows for each in (name, f"{name}_low", f"{name}_high")]
    known = [x for x in own if x is not None]
    return ROOM * min(0.0, *known), ROOM * max(0.0, *known)


def _place_names(rows: list[dict[str, Any]], margin: float, across: tuple[float, float]) -> None:
    """Put the name of each point beside its interval, and names of equal heights apart."""

    def place(x: float) -> float:
        return math.copysign(math.log1p(abs(x) / margin), x)

    heights = [place(row["after_training"]) for row in rows]
    gap = (max(heights) - min(*heights, 0.0)) / max(LINES, len(rows))
    middle = (place(across[0]) + place(across[1])) / 2
    before = math.inf
    for row in sorted(rows, key=lambda row: -row["after_training"]):
        side = "right"
        end = "low"
        if place(row["difference"]) < middle:
            side = "left"
            end = "high"
        height = min(place(row["after_training"]), before - gap)
        before = height
        row["height"] = math.copysign(margin * math.expm1(abs(height)), height)
        row["side"] = side
        row["beside"] = row[f"difference_{end}"]
        if row["beside"] is None:
            row["beside"] = row["difference"]


def _name(label: str) -> str:
    """Return the name of a single cut, and the numbers of several."""
    numbers = NUMBERS.findall(label)
    if len(numbers) > 1:
        return ", ".join(numbers)
    return label.removeprefix("cut ")
