"""The charts of single points: each seed, and the loss against what a point costs."""

from collections.abc import Iterator
from typing import Any

import altair as alt
import polars as pl

from lmzoo.lab.analysis.report.colours import BASELINE, Hues, label_axis, titled, with_rows

COSTS = {
    "parameters": "parameters",
    "flops": "floating point operations per token",
    "seconds": "seconds of training of a run",
}
"""Column of a ranking -> the title of its axis."""
MOST_DOTS = 200
"""Seeds of a point that have a dot: a browser is slow with more than some thousands."""
WIDE = 4
"""An axis on which the largest cost is more than this multiple of the least one is logarithmic."""


def seeds_chart(losses: pl.DataFrame, hues: Hues, what: str) -> Any:
    """Return the test loss of each seed as a dot, and the mean of each point but baselines.

    `losses` has label, seed and loss, a row for each confirm run.
    """
    measured = set(losses["label"])
    labels = {
        label: "" for label, group in hues.groups.items() if label in measured and group != BASELINE
    }
    y = alt.Y("label:N", sort=[*labels], title=None).axis(label_axis(labels))
    own = losses.filter(pl.col("label").is_in([*labels]))
    colour = hues.colour(labels).legend(None)
    first = own.filter(pl.int_range(pl.len()).over("label") < MOST_DOTS)
    facts = [*hues.tooltips(), "seed:Q", alt.Tooltip("loss:Q", format=".4~g")]
    x = alt.X("loss:Q", title=what).scale(zero=False, padding=8)
    dots = hues.chart(first).mark_point(size=28, opacity=0.7)
    dots = dots.encode(x=x, y=y, color=colour, tooltip=facts)
    means = own.group_by("label", maintain_order=True).agg(pl.col("loss").mean())
    lines = hues.chart(means).mark_tick(thickness=2, size=14).encode(x=x, y=y, color=colour)
    chart = with_rows(alt.layer(dots, lines), labels)
    whose = "seeds"
    if len(first) < len(own):
        whose = f"the first {MOST_DOTS} seeds"
    return titled(chart, "seeds", [f"dots: {whose}; lines: means of all"])


def cost_charts(ranked: pl.DataFrame, hues: Hues, what: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the chart of each cost in which the points of a table differ."""
    measured = ranked.drop_nulls("loss")
    for name in COSTS:
        points = measured.filter(pl.col(name) > 0)
        if points[name].n_unique() > 1:
            yield f"cost-{name}", _cost_chart(points, hues, name, what)


def front_of(points: pl.DataFrame, cost: str) -> pl.DataFrame:
    """Return the points of which no other one costs at most as much and is better."""
    sign = 1
    if points["higher_is_better"].item(0):
        sign = -1
    ordered = points.with_columns(badness=sign * pl.col("loss")).sort(cost, "badness")
    best_before = pl.col("badness").cum_min().shift(1)
    return ordered.filter(best_before.is_null() | (pl.col("badness") < best_before))


def _cost_chart(points: pl.DataFrame, hues: Hues, cost: str, what: str) -> Any:
    columns = ["label", "loss", "low", "high", cost]
    least, most = points[cost].min(), points[cost].max()
    scale = alt.Scale(zero=False)
    if most > WIDE * least:  # type: ignore[operator]
        scale = alt.Scale(type="log", nice=False, padding=12)
    x = alt.X(f"{cost}:Q", title=COSTS[cost], scale=scale).axis(format="~s")
    y = alt.Y("loss:Q", title=what).scale(zero=False)
    facts = [*hues.tooltips(), f"{cost}:Q", alt.Tooltip("loss:Q", format=".4~g")]
    base = hues.chart(points.select(columns)).encode(x=x, color=hues.colour(points["label"]))
    dots = base.mark_point(filled=True, size=45).encode(y=y, tooltip=facts)
    intervals = base.mark_rule().encode(y=alt.Y("low:Q", title=what), y2="high:Q")
    front = hues.chart(front_of(points, cost).select(columns))
    steps = front.mark_line(
        interpolate="step-after", color="var(--muted)", strokeDash=[4, 3]
    ).encode(x=x, y=y)
    notes = ["dashed: the Pareto front, no point is better for less"]
    return titled(alt.layer(steps, intervals, dots), f"loss against {cost}", notes)
