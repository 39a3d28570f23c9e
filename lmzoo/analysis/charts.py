"""The curves as charts: from the frames of curve_data.py to altair.

One colour per point, in the order of the ranking, so that pictures can be read side by side.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl

WIDTH, HEIGHT = 520, 300
STATUSES = ("finished", "pruned", "diverged", "failed", "not ended")
SHAPES = ("circle", "triangle-down", "cross", "square", "diamond")


def learning_chart(frame: pl.DataFrame, order: Sequence[str], metric: str) -> Any:
    """Mean validation loss by epoch, its interval as a band."""
    epochs = sorted(set(frame["epoch"]))
    axis = alt.Axis(values=epochs) if len(epochs) <= 20 else alt.Axis(tickMinStep=1, format="d")
    base = _chart(frame).encode(x=alt.X("epoch:Q", title="epoch", axis=axis), color=_colour(order))
    title = f"validation loss, nats per token ({metric})"
    line = base.mark_line(point=alt.OverlayMarkDef(size=18)).encode(y=_loss("loss:Q", title))
    band = base.mark_area(opacity=0.13).encode(y=_loss("low:Q", title), y2="high:Q")
    return _named(alt.layer(band, line), "learning curves", "mean of seeds, 95 % interval")


def setting_chart(frame: pl.DataFrame, order: Sequence[str], name: str, *, log: bool) -> Any:
    """Last validation loss of each tuned setting; those without one stand at the top."""
    rows = frame.with_columns(pl.col("status").fill_null("not ended"))
    measured, lost = (
        rows.filter(pl.col("loss").is_not_null()),
        rows.filter(pl.col("loss").is_null()),
    )
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    x = alt.X("value:Q", title=name, scale=scale).axis(format="~g", labelOverlap=True)
    shape = alt.Shape("status:N", title="ended").scale(domain=list(STATUSES), range=list(SHAPES))
    shape = shape.legend(values=[s for s in STATUSES if s in set(rows["status"])])
    title = "last validation loss"
    line = (
        _chart(measured.filter(pl.col("status") == "finished"))
        .mark_line(opacity=0.4)
        .encode(x=x, y=_loss("loss:Q", title), color=_colour(order))
    )
    marks = (
        _chart(measured)
        .mark_point(filled=True, size=45, opacity=0.9)
        .encode(x=x, y=_loss("loss:Q", title), color=_colour(order), shape=shape)
    )
    layers = [line, marks]
    if lost.height:
        layers.append(
            _chart(lost)
            .mark_point(filled=True, size=60)
            .encode(x=x, y=alt.value(4), color=_colour(order), shape=shape)
        )
    note = f"; at the top {lost.height} without a loss" if lost.height else ""
    return _named(
        alt.layer(*layers),
        f"{name} of every setting tried",
        f"lines join those that finished, pruned ones as they were left{note}",
    )


def cost_chart(frame: pl.DataFrame, order: Sequence[str], cost: str, title: str) -> Any:
    """Test loss against a cost, with its interval."""
    base = _chart(frame.drop_nulls(cost)).encode(
        x=alt.X(f"{cost}:Q", title=title, scale=alt.Scale(zero=False, nice=True)).axis(format="~s"),
        color=_colour(order),
    )
    rule = base.mark_rule().encode(y=_loss("low:Q", "test loss"), y2="high:Q")
    mark = base.mark_point(filled=True, size=60).encode(y=_loss("loss:Q", "test loss"))
    return _named(
        alt.layer(rule, mark), f"loss against {title}", "test, mean of seeds, 95 % interval"
    )


def survival_chart(frame: pl.DataFrame, order: Sequence[str]) -> Any:
    """How many of a point's tuned settings trained each epoch."""
    base = _chart(frame).encode(
        x=alt.X("epoch:O", title="epoch").axis(labelAngle=0),
        y=alt.Y("label:N", sort=list(order), title=None).axis(labelLimit=260),
    )
    colour = alt.Color("share:Q", title="still in training").scale(domain=[0, 1], scheme="blues")
    cells = (
        base.transform_calculate(share="datum.left / datum.tuned")
        .mark_rect()
        .encode(color=colour.legend(format=".0%"))
    )
    dark = alt.condition("datum.left / datum.tuned > 0.6", alt.value("white"), alt.value("black"))
    text = base.mark_text(fontSize=10).encode(text="left:Q", color=dark)
    chart = alt.layer(cells, text).properties(width={"step": 30}, height={"step": 20})
    return chart.properties(
        title=_title(
            "settings in training at each epoch", "of those tuned; early stopping ended the others"
        )
    )


def _chart(frame: pl.DataFrame) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=frame.to_dicts()))


def _colour(order: Sequence[str]) -> Any:
    scheme = "tableau10" if len(order) <= 10 else "tableau20"
    legend = alt.Legend(
        symbolLimit=0, symbolOpacity=1, labelLimit=260, columns=1 + len(order) // 20
    )
    return (
        alt.Color("label:N", title="point").scale(domain=list(order), scheme=scheme).legend(legend)
    )


def _loss(field: str, title: str) -> Any:
    return alt.Y(field, title=title, scale=alt.Scale(zero=False))


def _named(chart: Any, title: str, subtitle: str) -> Any:
    return chart.properties(width=WIDTH, height=HEIGHT, title=_title(title, subtitle))


def _title(title: str, subtitle: str) -> alt.TitleParams:
    return alt.TitleParams(title, subtitle=subtitle, anchor="start")
