"""Draw the curves of a study with altair, from the frames of `curve_data.py`.

Every chart has one colour per point, in the order of the ranking, so charts can be compared.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from lmzoo.analysis.curve_data import (
    learning_curves,
    numeric_fields,
    point_costs,
    survival,
    tuned_settings,
)
from lmzoo.analysis.load import StudyFolder

WIDTH, HEIGHT = 520, 300
PALETTE = (
    *("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7"),
    *("#9c755f", "#8a8a8a", "#2b6cb0", "#c05621", "#2c7a7b", "#6b46c1", "#97266d", "#718096"),
)
STATUSES = ("finished", "pruned", "diverged", "failed", "not ended")
SHAPES = ("circle", "triangle-down", "cross", "square", "diamond")
SAVE_OPTIONS = {"png": {"scale_factor": 2}, "svg": {}, "html": {"inline": True}}
"""Format of a chart's file -> options of altair's `save`."""


def curve_charts(
    folder: StudyFolder, ranked: pl.DataFrame, metric: str = "token", reference_colour: str = ""
) -> dict[str, Any]:
    """Return file stem -> chart, for every curve that the study has data for.

    The ranking gives the order of the colours and the losses of the cost charts. A click on the
    legend shows one point, with the shift key several.
    """
    labels = ranked.filter(pl.col("label").is_not_null()).select("label", "reference").rows()
    count = itertools.count()
    order = {
        label: reference_colour
        if is_reference and reference_colour
        else PALETTE[next(count) % len(PALETTE)]
        for label, is_reference in labels
    }
    charts: dict[str, Any] = {}
    learning = learning_curves(folder, metric)
    if learning.height:
        charts["learning"] = learning_chart(learning, order, metric)
    for name, log in numeric_fields(folder).items():
        settings = tuned_settings(folder, name, metric)
        if settings.height:
            charts[f"setting-{name}"] = setting_chart(settings, order, name, log=log)
    costs = point_costs(folder, ranked)
    if costs.height:
        charts["parameters"] = cost_chart(costs, order, "parameters", "parameters")
        charts["time"] = cost_chart(costs, order, "seconds", "seconds of training, one run")
    surviving = survival(folder)
    if surviving.height:
        charts["survival"] = survival_chart(surviving, order)
    return charts


def save_chart(chart: Any, folder: Path, stem: str, format: str) -> Path:
    """Write a chart as FOLDER/STEM.FORMAT and return the path; HTML needs no network."""
    path = folder / f"{stem}.{format}"
    chart.save(str(path), format=format, **SAVE_OPTIONS[format])
    return path


def learning_chart(frame: pl.DataFrame, order: Mapping[str, str], metric: str) -> Any:
    """Return the mean validation loss by epoch, with its interval as a band."""
    picked = _picked()
    epochs = sorted(set(frame["epoch"]))
    axis = alt.Axis(values=epochs) if len(epochs) <= 20 else alt.Axis(tickMinStep=1, format="d")
    base = _chart(frame).encode(x=alt.X("epoch:Q", title="epoch", axis=axis), color=_colour(order))
    title = f"validation loss, nats per token ({metric})"
    numbers = [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("loss", "low", "high")]
    line = base.mark_line(point=alt.OverlayMarkDef(size=30)).encode(
        y=_loss("loss:Q", title),
        opacity=alt.condition(picked, alt.value(1), alt.value(0.06)),
        tooltip=["label:N", "epoch:Q", *numbers, "runs:Q"],
    )
    band = base.mark_area().encode(
        y=_loss("low:Q", title),
        y2="high:Q",
        opacity=alt.condition(picked, alt.value(0.13), alt.value(0)),
    )
    chart = alt.layer(band, line.add_params(picked))
    return _titled(chart, "learning curves", "mean over seeds, 95 % interval")


def setting_chart(frame: pl.DataFrame, order: Mapping[str, str], name: str, *, log: bool) -> Any:
    """Return the last validation loss of each tuned setting; at the top, settings without one."""
    rows, picked = frame.with_columns(pl.col("status").fill_null("not ended")), _picked()
    measured, without_loss = (
        rows.filter(pl.col("loss").is_not_null()),
        rows.filter(pl.col("loss").is_null()),
    )
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    x = alt.X("value:Q", title=name, scale=scale).axis(
        format="~g", labelOverlap="greedy", labelSeparation=6
    )
    shape = alt.Shape("status:N", title="status").scale(domain=list(STATUSES), range=list(SHAPES))
    shape = shape.legend(values=[s for s in STATUSES if s in set(rows["status"])])
    title = "last validation loss"
    line = (
        _chart(measured.filter(pl.col("status") == "finished"))
        .mark_line()
        .encode(
            x=x,
            y=_loss("loss:Q", title),
            color=_colour(order),
            opacity=alt.condition(picked, alt.value(0.4), alt.value(0.03)),
        )
    )
    marks = (
        _chart(measured)
        .mark_point(filled=True, size=45)
        .encode(
            x=x,
            y=_loss("loss:Q", title),
            color=_colour(order),
            shape=shape,
            opacity=alt.condition(picked, alt.value(0.9), alt.value(0.06)),
            tooltip=[
                "label:N",
                "value:Q",
                alt.Tooltip("loss:Q", format=".4f"),
                "status:N",
                "epoch:Q",
            ],
        )
    )
    layers = [line, marks.add_params(picked)]
    if chosen := rows.filter(pl.col("chosen")).height:
        ring = (
            _chart(rows.filter(pl.col("chosen") & pl.col("loss").is_not_null()))
            .mark_point(size=170, strokeWidth=2)
            .encode(x=x, y=_loss("loss:Q", title), color=_colour(order))
        )
        layers.append(ring)
    if without_loss.height:
        layers.append(
            _chart(without_loss)
            .mark_point(filled=True, size=60)
            .encode(x=x, y=alt.value(4), color=_colour(order), shape=shape)
        )
    note = f"; at the top: {without_loss.height} without a loss" if without_loss.height else ""
    return _titled(
        alt.layer(*layers),
        f"{name} of every setting",
        f"lines join finished runs; pruned runs have their last loss"
        f"{'; rings: the settings that the fit to all points chose' if chosen else ''}{note}",
    )


def cost_chart(frame: pl.DataFrame, order: Mapping[str, str], cost: str, title: str) -> Any:
    """Return the test loss over a cost, with its interval."""
    base = _chart(frame.drop_nulls(cost)).encode(
        x=alt.X(f"{cost}:Q", title=title, scale=alt.Scale(zero=False, nice=True)).axis(
            format=",~r" if cost == "parameters" else "~g"
        ),
        color=_colour(order),
    )
    rule = base.mark_rule().encode(y=_loss("low:Q", "test loss"), y2="high:Q")
    mark = base.mark_point(filled=True, size=60).encode(
        y=_loss("loss:Q", "test loss"),
        tooltip=[
            "label:N",
            alt.Tooltip("loss:Q", format=".4f"),
            alt.Tooltip(f"{cost}:Q", format=",.3~f"),
        ],
    )
    return _titled(
        alt.layer(rule, mark), f"loss over {title}", "test, mean over seeds, 95 % interval"
    )


def survival_chart(frame: pl.DataFrame, order: Mapping[str, str]) -> Any:
    """Return how many of a point's tuned settings trained each epoch."""
    base = _chart(frame).encode(
        x=alt.X("epoch:O", title="epoch").axis(labelAngle=0),
        y=alt.Y("label:N", sort=list(order), title=None),
    )
    colour = alt.Color("share:Q", title="share in training").scale(domain=[0, 1], scheme="blues")
    cells = (
        base.transform_calculate(share="datum.trained / datum.tuned")
        .mark_rect()
        .encode(color=colour.legend(format=".0%"))
    )
    dark = alt.condition(
        "datum.trained / datum.tuned > 0.6", alt.value("white"), alt.value("black")
    )
    text = base.mark_text(fontSize=10).encode(text="trained:Q", color=dark)
    chart = alt.layer(cells, text).properties(width={"step": 30}, height={"step": 20})
    return chart.properties(
        title=_title(
            "settings in training at each epoch", "of all tuned; early stopping ended the others"
        )
    )


def _chart(frame: pl.DataFrame) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=frame.to_dicts()))


def _picked() -> Any:
    """Return the points that are selected in the legend; all if none is."""
    return alt.selection_point(fields=["label"], bind="legend")


def _colour(order: Mapping[str, str]) -> Any:
    legend = alt.Legend(
        symbolLimit=0, symbolOpacity=1, labelLimit=260, columns=1 + len(order) // 20
    )
    return (
        alt.Color("label:N", title="point")
        .scale(domain=list(order), range=list(order.values()))
        .legend(legend)
    )


def _loss(field: str, title: str) -> Any:
    return alt.Y(field, title=title, scale=alt.Scale(zero=False))


def _titled(chart: Any, title: str, subtitle: str) -> Any:
    return chart.properties(width=WIDTH, height=HEIGHT, title=_title(title, subtitle))


def _title(title: str, subtitle: str) -> alt.TitleParams:
    return alt.TitleParams(title, subtitle=subtitle, anchor="start")
