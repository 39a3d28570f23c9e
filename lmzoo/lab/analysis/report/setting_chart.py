"""The chart of a search: every setting tried."""

from typing import Any

import altair as alt
import polars as pl

from lmzoo.lab.analysis.report.colours import Hues
from lmzoo.lab.store.records import STATUSES

SHOWN = (*STATUSES, "not ended")
SHAPES = ("circle", "triangle-down", "cross", "square", "diamond")
JOINED = "lines join the finished runs of a point"


def setting_chart(frame: pl.DataFrame, hues: Hues, name: str, *, log: bool) -> Any:
    """Return the last validation loss of each tuned setting; at the top, settings without one."""
    rows, by = frame.with_columns(pl.col("status").fill_null("not ended")), hues.picked()
    measured = rows.filter(pl.col("loss").is_not_null())
    without_loss = rows.filter(pl.col("loss").is_null())
    chosen = measured.filter("chosen")
    highest = _highest(measured)
    above = measured.filter(pl.col("loss") > highest)
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    x = alt.X("value:Q", title=name, scale=scale).axis(
        format="~g", labelOverlap="greedy", labelSeparation=6
    )
    y = alt.Y("loss:Q", title="last validation loss", scale=_up_to(measured, highest, above))
    shape = alt.Shape("status:N", title="status").scale(domain=list(SHOWN), range=list(SHAPES))
    shape = shape.legend(values=[s for s in SHOWN if s in set(rows["status"])])
    value = alt.Tooltip("value:Q", title=name, format="~g")
    loss = alt.Tooltip("loss:Q", format=".4f")
    facts = [*hues.tooltips(), value, loss, "status:N", "epoch:Q", "chosen:N"]
    colour = hues.colour()
    line = hues.chart(measured.filter(pl.col("status") == "finished")).mark_line()
    line = line.encode(
        x=x, y=y, color=colour, detail="label:N", opacity=hues.opacity(by, 0.6, 0.03),
        tooltip=[*hues.tooltips(), value, loss],
    )  # fmt: skip
    marks = hues.chart(measured).mark_point(filled=True, size=45)
    marks = marks.encode(
        x=x, y=y, color=colour, shape=shape, opacity=hues.opacity(by, 0.9), tooltip=facts
    )
    layers, notes = [line, marks.add_params(by)], [JOINED]
    if chosen.height:
        rings = hues.chart(chosen).mark_point(size=170, strokeWidth=2)
        layers.append(rings.encode(x=x, y=y, color=colour, opacity=hues.opacity(by), tooltip=facts))
        notes.append("rings: the chosen settings")
    if without_loss.height:
        top = hues.chart(without_loss).mark_point(filled=True, size=60)
        layers.append(top.encode(x=x, y=alt.value(4), color=colour, shape=shape, tooltip=facts))
        notes.append(f"at the top: {without_loss.height} without a loss")
    if above.height:
        losses = "1 loss" if above.height == 1 else f"{above.height} losses"
        notes.append(f"at the top: {losses} above {highest:.3g}")
    heading = alt.TitleParams(f"{name} of every setting", subtitle=notes, anchor="start")
    return alt.layer(*layers).properties(title=heading)


def _highest(measured: pl.DataFrame) -> float:
    """Return the loss at the top of the chart: 1.6 times the range of the finished runs."""
    ended = measured.filter(pl.col("status") == "finished")["loss"]
    if ended.is_empty():
        return float("inf")
    low, high = float(ended.min()), float(ended.max())  # type: ignore[arg-type]
    return low + 1.6 * (high - low) if high > low else float("inf")


def _up_to(measured: pl.DataFrame, highest: float, above: pl.DataFrame) -> alt.Scale:
    if above.is_empty():
        return alt.Scale(zero=False)
    low = float(measured["loss"].min())  # type: ignore[arg-type]
    return alt.Scale(domain=[low - 0.05 * (highest - low), highest], clamp=True, nice=False)
