"""The charts of single points: each seed, and the loss against what a point costs."""

from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl
from polars import DataFrame, col

from lmzoo.lab.analysis.report.colours import (
    BASELINE,
    Hues,
    by_verdict,
    chart_of,
    label_rows,
    scale_of,
)

COSTS = {
    "parameters": "parameters",
    "flops": "floating point operations per token",
    "seconds": "seconds of training of a run",
}
"""Column of a ranking -> the title of its axis."""
WIDE = 4
"""An axis on which the largest cost is more than this multiple of the least one is logarithmic."""


def seeds_chart(losses: DataFrame, hues: Hues, what: str) -> Any:
    """Return the test loss of each seed as a dot, and the mean of each point but baselines.

    `losses` has label, seed and loss, a row for each confirm run.
    """
    measured = set(losses["label"])
    labels = {
        label: "" for label, group in hues.groups.items() if label in measured and group != BASELINE
    }
    own = losses.filter(col("label").is_in(list(labels)))
    by_label = own.group_by("label", maintain_order=True)
    means = by_label.agg(pl.mean("loss"))
    return chart_of(
        "seeds",
        "seeds",
        ["dots: seeds; lines: their means"],
        labels=label_rows(labels),
        scale=scale_of(own["loss"]) | {"padding": 8},
        hues=hues,
        what=what,
        dots=hues.rows(own),
        means=hues.rows(means),
    )


def cost_charts(ranked: DataFrame, hues: Hues, what: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the chart of each cost in which the points of a table differ."""
    measured = ranked.drop_nulls("loss")
    # A model of counts is so much faster and worse that all others would be one dot.
    is_count = col("is_baseline") & (col("parameters") == 0)
    for name in COSTS:
        is_shown = (col(name) > 0) & ~is_count
        points = measured.filter(is_shown)
        if points[name].n_unique() > 1:
            rest = measured.filter(~is_shown.fill_null(value=False))["label"]
            yield f"cost-{name}", _cost_chart(points, hues, name, what, rest)


def front_of(points: DataFrame, cost: str) -> DataFrame:
    """Return the points of which no other one costs at most as much and is better."""
    sign = 1
    if points["higher_is_better"].item(0):
        sign = -1
    ordered = points.with_columns(badness=sign * col("loss")).sort(cost, "badness")
    best_before = col("badness").cum_min().shift(1)
    return ordered.filter(best_before.is_null() | (col("badness") < best_before))


def _cost_chart(points: DataFrame, hues: Hues, cost: str, what: str, rest: Iterable[str]) -> Any:
    columns = ["label", "loss", "low", "high", cost]
    least = points[cost].min()
    most = points[cost].max()
    notes = ["dashed: the Pareto front, no point is better for less"]
    # A point that is not drawn must not go unnoticed.
    left = ", ".join(rest)
    if left:
        notes.append(f"not shown: {left}")
    rows = hues.rows(points.select(columns))
    return chart_of(
        "cost",
        f"loss against {cost}",
        notes,
        cost=cost,
        axis=COSTS[cost],
        what=what,
        log=most > WIDE * least,  # type: ignore[operator]
        scale=scale_of(points["loss"]),
        hues=hues,
        legend=hues.legend(points["label"]),
        points=rows,
        front=hues.rows(front_of(points, cost).select(columns)),
        **by_verdict(rows),
    )
