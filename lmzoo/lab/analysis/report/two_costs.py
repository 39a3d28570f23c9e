"""The chart of the two costs of a cut: after training, and in a model trained without the part."""

import math
import re
from collections.abc import Sequence
from typing import Any

from polars import DataFrame, col

from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.analysis.after_training import MOST, add_after_training, has_ablations
from lmzoo.lab.analysis.columns import AFTER_TRAINING_ENDS
from lmzoo.lab.analysis.formatting import UNITS
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.report.colours import by_verdict, chart_of, group_of

NAME = "after-training"
ROOM = 1.25
"""An axis is longer than its greatest number."""
LINES = 28
"""Lines of text that fit above each other in the height of a chart."""
NUMBERS = re.compile(r"\((\d+)\)")


def two_costs_chart(folder: StudyFolder, ranked: DataFrame) -> Any:
    """Return the chart of a study whose trained models were cut; None for another one."""
    if not has_ablations(folder):
        return None
    # A point that is no cut has no cost after training.
    cut = add_after_training(ranked, folder).drop_nulls("after_training")
    both = cut.drop_nulls("difference")
    shown = [name for name in both.columns if name.startswith(("diff", "after"))]
    rows = []
    for row in both.filter(~col("reference")).iter_rows(named=True):
        label = row["label"]
        costs = {name: row[name] for name in shown}
        name = _name(label)
        if costs["after_training"] > MOST:
            # It would hide the others: it stands at the end of the axis, with its number.
            name += f" {costs['after_training']:.2g}"
            costs |= dict.fromkeys(AFTER_TRAINING_ENDS, None)
            costs["after_training"] = MOST
        rows.append(costs | {"label": label, "name": name, "group": group_of(row)})
    if not rows:
        return None
    margin = both["margin"].item(0)
    across = _ends(rows, "difference", margin)
    down = _ends(rows, "after_training", margin)
    _place_names(rows, margin, across)
    metric = both["metric"].item(0)
    notes = [
        "above the line, a cut hurts the trained model more than a model trained without the part",
        f"95 % intervals; both axes are about linear within ±{margin:g} and logarithmic beyond",
    ]
    if both.filter(col("after_training") > MOST).height:
        notes.append(
            f"a cost above {MOST:,.0f} nats is drawn at {MOST:,.0f}; the name has its size"
        )
    # A point that is not trained yet has no verdict.
    unsolved = cut.filter(col("difference").is_null() & col("verdict").is_not_null())["label"]
    if len(unsolved):
        names = ", ".join(map(_name, unsolved))
        notes.append(f"not drawn, as most models without the part fail: {names}")
    return chart_of(
        "two_costs",
        "Cut after training, or trained without",
        notes,
        rows=rows,
        low=min(across[0], down[0]),
        ends=[across[1], down[1]],
        margin=margin,
        unit=UNITS.get(metric, metric),
        **by_verdict(rows),
    )


def _ends(rows: Sequence[Fields], name: str, margin: float) -> tuple[float, float]:
    """Return the ends of an axis, which holds 0, the margin and all intervals."""
    known = [0.0, margin]
    for row in rows:
        for end in (row[name], row[f"{name}_low"], row[f"{name}_high"]):
            if end is not None:
                known.append(end)
    return ROOM * min(known), ROOM * max(known)


def _place_names(rows: list[FieldsDict], margin: float, across: tuple[float, float]):
    """Put the name of each point beside its interval, and names of equal heights apart."""

    def place(x: float) -> float:
        # As the axes: linear within the margin, logarithmic beyond.
        return math.copysign(math.log1p(abs(x) / margin), x)

    heights = [place(row["after_training"]) for row in rows]
    span = max(heights) - min(min(heights), 0.0)
    gap = span / max(LINES, len(rows))
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
        # Back in the unit of the losses: the chart places it on its axis.
        row["height"] = math.copysign(margin * math.expm1(abs(height)), height)
        row["side"] = side
        row["beside"] = row[f"difference_{end}"]
        # A single seed has no interval.
        if row["beside"] is None:
            row["beside"] = row["difference"]


def _name(label: str) -> str:
    """Return the name of a single cut, and the numbers of several."""
    numbers = NUMBERS.findall(label)
    if len(numbers) > 1:
        return ", ".join(numbers)
    return label.removeprefix("cut ")
