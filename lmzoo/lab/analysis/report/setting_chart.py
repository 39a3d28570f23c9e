"""The chart of a search: every setting tried."""

from typing import Any

import altair as alt
import polars as pl

from lmzoo.lab.analysis.report.colours import Hues, titled
from lmzoo.lab.store.records import STATUSES

SHOWN = (*STATUSES, "not ended")
SHAPES = ("circle", "triangle-down", "cross", "square", "diamond")
MOST_MARKS = 4000
"""Settings that a chart shows: a browser is slow with more."""
JOINED = "lines join the finished runs of a point"


def setting_chart(
    frame: pl.DataFrame, hues: Hues, name: str, what: str, sign: int, *, log: bool
) -> Any:
    """Return the last validated value of each tuned setting; at the edge, those without one.

    `sign` is −1 if the highest value is the best: then the edge is below, and above otherwise.
    """
    rows = frame.with_columns(pl.col("status").fill_null("not ended"))
    measured = rows.filter(pl.col("loss").is_not_null())
    without_loss = rows.filter(pl.col("loss").is_null())
    chosen = measured.filter("chosen")
    worst = _worst(measured, sign)
    beyond = measured.filter(sign * pl.col("loss") > sign * worst)
    step = 1 + len(measured) // MOST_MARKS
    shown = measured.gather_every(step)
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    x = alt.X("value:Q", title=name, scale=scale).axis(
        format="~g", labelOverlap="greedy", labelSeparation=6
    )
    y = alt.Y(
        "loss:Q", title=f"last validation {what}", scale=_up_to(measured, worst, beyond, sign)
    )
    shape = alt.Shape("status:N", title="status").scale(domain=list(SHOWN), range=list(SHAPES))
    shape = shape.legend(values=[s for s in SHOWN if s in set(rows["status"])])
    value = alt.Tooltip("value:Q", title=name, format="~g")
    loss = alt.Tooltip("loss:Q", format=".4~g")
    facts = [*hues.tooltips(), value, loss, "status:N", "epoch:Q", "chosen:N"]
    colour = hues.colour()
    line = hues.chart(shown.filter(pl.col("status") == "finished")).mark_line()
    line = line.encode(
        x=x, y=y, color=colour, detail="label:N", opacity=hues.opacity(0.6),
        tooltip=[*hues.tooltips(), value, loss],
    )  # fmt: skip
    marks = hues.chart(shown).mark_point(filled=True, size=45)
    marks = marks.encode(
        x=x, y=y, color=colour, shape=shape, opacity=hues.opacity(0.9), tooltip=facts
    )
    layers = [line, marks]
    notes = [JOINED]
    if step > 1:
        notes.append(f"one of {step} settings is shown")
    if chosen.height:
        rings = hues.chart(chosen).mark_point(size=170, strokeWidth=2)
        layers.append(rings.encode(x=x, y=y, color=colour, opacity=hues.opacity(), tooltip=facts))
        notes.append("rings: the chosen settings")
    edge, side = ("at the top", "above") if sign > 0 else ("at the bottom", "below")
    if without_loss.height:
        place = alt.value(4) if sign > 0 else alt.YValue(alt.ExprRef("height - 4"))
        own = hues.chart(without_loss).mark_point(filled=True, size=60)
        layers.append(own.encode(x=x, y=place, color=colour, shape=shape, tooltip=facts))
        notes.append(f"{edge}: {without_loss.height} without a value")
    if beyond.height:
        values = "1 value" if beyond.height == 1 else f"{beyond.height} values"
        notes.append(f"{edge}: {values} {side} {worst:.3g}")
    return titled(alt.layer(*layers), f"{name} of every setting", notes)


def _worst(measured: pl.DataFrame, sign: int) -> float:
    """Return the value at the edge of the chart: 1.6 times the range of the finished runs."""
    ended = sign * measured.filter(pl.col("status") == "finished")["loss"]
    best = ended.min()
    worst = ended.max()
    if worst is None or worst == best:
        return sign * float("inf")
    return sign * (best + 1.6 * (worst - best))  # type: ignore[operator]


def _up_to(measured: pl.DataFrame, worst: float, beyond: pl.DataFrame, sign: int) -> alt.Scale:
    """Return a scale that ends at the worst value that is shown."""
    if beyond.is_empty():
        return alt.Scale(zero=False)
    best = sign * float((sign * measured["loss"]).min())  # type: ignore[arg-type]
    domain = sorted([best - 0.05 * (worst - best), worst])
    return alt.Scale(domain=domain, clamp=True, nice=False)
