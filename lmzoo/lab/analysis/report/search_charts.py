"""Charts of a search: every setting tried with the fitted responses, and how long each trained."""

from typing import Any

import altair as alt
import polars as pl

from lmzoo.lab.analysis.report.colours import Look, label_axis, picked, readable_on, with_rows

STATUSES = ("finished", "pruned", "diverged", "failed", "not ended")
SHADES = ["#f4f6f8", "#0068b3"]
"""Colours of no setting and of all settings in training."""
SHAPES = ("circle", "triangle-down", "cross", "square", "diamond")


def setting_chart(
    frame: pl.DataFrame, fitted: pl.DataFrame, look: Look, name: str, *, log: bool
) -> Any:
    """Return the last validation loss of each tuned setting; at the top, settings without one.

    Lines are the fitted responses. Where there are none, they join the finished runs.
    """
    rows, by = frame.with_columns(pl.col("status").fill_null("not ended")), picked(look)
    measured = rows.filter(pl.col("loss").is_not_null())
    without_loss = rows.filter(pl.col("loss").is_null())
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    x = alt.X("value:Q", title=name, scale=scale).axis(
        format="~g", labelOverlap="greedy", labelSeparation=6
    )
    highest = _highest(measured)
    y = alt.Y("loss:Q", title="last validation loss", scale=_up_to(measured, highest))
    shape = alt.Shape("status:N", title="status").scale(domain=list(STATUSES), range=list(SHAPES))
    shape = shape.legend(values=[s for s in STATUSES if s in set(rows["status"])])
    value = alt.Tooltip("value:Q", title=name, format="~g")
    loss = alt.Tooltip("loss:Q", format=".4f")
    facts = [*look.tooltips(), value, loss, "status:N", "epoch:Q", "chosen:N"]
    curves = fitted.rename({"fitted": "loss"})
    joined = measured.filter(pl.col("status") == "finished") if curves.is_empty() else curves
    line = (
        look.chart(joined)
        .mark_line(interpolate="linear" if curves.is_empty() else "monotone")
        .encode(
            x=x, y=y, color=look.colour(), detail="label:N",
            opacity=look.opacity(by, 0.6, 0.03),
            tooltip=[*look.tooltips(), value, alt.Tooltip("loss:Q", title="fitted", format=".4f")],
        )
    )  # fmt: skip
    marks = (
        look.chart(measured)
        .mark_point(filled=True, size=45)
        .encode(
            x=x, y=y, color=look.colour(), shape=shape, opacity=look.opacity(by, 0.9),
            tooltip=facts,
        )
    )  # fmt: skip
    layers = [line, marks.add_params(*by.parameters)]
    chosen = measured.filter("chosen")
    if chosen.height:
        rings = look.chart(chosen).mark_point(size=170, strokeWidth=2)
        opacity = look.opacity(by)
        layers.append(
            rings.encode(x=x, y=y, color=look.colour(), opacity=opacity, tooltip=facts)
        )  # fmt: skip
    if without_loss.height:
        top = look.chart(without_loss).mark_point(filled=True, size=60)
        layers.append(
            top.encode(x=x, y=alt.value(4), color=look.colour(), shape=shape, tooltip=facts)
        )
    if curves.is_empty():
        notes = ["lines join the finished runs of a point"]
    else:
        notes = [
            "lines: the response of a point, fitted to the lowest losses of its finished runs "
            "and shrunk to the mean response of all points; losses far above a point's best one "
            "count less, and pruned runs are not in the fit",
        ]
    notes += ["rings: the chosen settings"] if chosen.height else []
    notes += [f"at the top: {without_loss.height} without a loss"] if without_loss.height else []
    above = measured.filter(pl.col("loss") > highest)
    ended = sorted(set(above["epoch"]))
    if ended:
        when = f"epoch {ended[0]}" + f" to {ended[-1]}" * (len(ended) > 1)
        losses = "1 loss" if above.height == 1 else f"{above.height} losses"
        notes += [f"at the top: {losses} above {highest:.3g}, from {when}"]
    heading = alt.TitleParams(f"{name} of every setting", subtitle=notes, anchor="start")
    return alt.layer(*layers).properties(title=heading)


def _highest(measured: pl.DataFrame) -> float:
    """Return the loss at the top of the chart.

    A pruned run stopped early, with a loss far above the others. The axis ends at 1.6 times the
    range of the finished runs, so that the differences between them can be seen.
    """
    ended = measured.filter(pl.col("status") == "finished")["loss"]
    if ended.is_empty():
        return float("inf")
    low, high = float(ended.min()), float(ended.max())  # type: ignore[arg-type]
    return low + 1.6 * (high - low) if high > low else float("inf")


def _up_to(measured: pl.DataFrame, highest: float) -> alt.Scale:
    """Return a scale on which higher losses stand at the top."""
    if measured.filter(pl.col("loss") > highest).is_empty():
        return alt.Scale(zero=False)
    low = float(measured["loss"].min())  # type: ignore[arg-type]
    return alt.Scale(domain=[low - 0.05 * (highest - low), highest], clamp=True, nice=False)


def survival_chart(frame: pl.DataFrame, look: Look, *, page: bool) -> Any:
    """Return how many of a point's tuned settings trained each epoch; a page has own colours."""
    labels = set(frame["label"])
    base = (
        look.chart(frame)
        .transform_calculate(share="datum.trained / datum.tuned")
        .encode(
            x=alt.X("epoch:O", title="epoch").axis(labelAngle=0),
            y=alt.Y("label:N", sort=list(look.groups), title=None).axis(label_axis(labels)),
            tooltip=[
                *look.tooltips(), "epoch:O", "trained:Q", "tuned:Q",
                alt.Tooltip("share:Q", format=".0%"),
            ],
        )
    )  # fmt: skip
    shades = ["var(--soft)", "var(--better)"] if page else SHADES
    colour = alt.Color("share:Q", title="share in training").scale(
        domain=[0, 1], range=shades, interpolate=alt.ScaleInterpolateEnum("rgb")
    )
    cells = base.mark_rect().encode(color=colour.legend(format=".0%"))
    number = readable_on("color", "share")
    text = base.mark_text(fontSize=11).encode(text="trained:Q", color=number)
    note = "of all tuned; early stopping ended the others"
    title = alt.TitleParams("settings in training at each epoch", subtitle=[note], anchor="start")
    return with_rows(alt.layer(cells, text), labels).properties(title=title)
