"""Plots of latents, attention maps and boundaries.

All heat maps have the same colour scale from 0 to 1, so they can be compared. Colours follow the
square root, so that a probability of 0.05 is visible.

Source: S0 (figures of latents).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
from torch import Tensor

from lmzoo.inspect.posterior import AttentionMaps, Boundaries, Posterior, Prior

COLOURS = ["#ffffff", "#6baed6", "#08519c", "#08306b"]
CELL = 22
"""Side of a heat-map cell in pixels, before scaling."""

MAPS_FULL_SIZE = 2
"""Up to this number of attention maps, cells have their full size."""


def save_png(chart: Any, path: Path) -> None:
    """Write a chart as PNG at twice its size in pixels."""
    chart.save(str(path), format="png", scale_factor=2)


def plot_posterior(posterior: Posterior, title: str, subtitle: str) -> alt.Chart:
    """Plot a heat map: predicted tokens on the x axis, values of the latent on the y axis."""
    axes = "predicted token", posterior.latent
    chart = heat_map(posterior.probability, posterior.values, posterior.tokens, axes)
    return chart.properties(title=heading(title, subtitle))


def plot_prior(prior: Prior, title: str, subtitle: str) -> Any:
    """Plot bars, or a heat map by position, or one heat map per slot."""
    if not prior.by_position:
        return _bars(prior).properties(title=heading(title, subtitle))
    positions = [str(t + 1) for t in range(prior.probability.shape[2])]
    axes = "position of the predicted token", prior.latent
    panels = [heat_map(slot, prior.values, positions, axes) for slot in prior.probability]
    if len(panels) == 1:
        return panels[0].properties(title=heading(title, subtitle))
    slots = [
        panel.properties(title=f"slot {n}").encode(y=panel.encoding.y.title(f"source of slot {n}"))
        for n, panel in enumerate(panels, 1)
    ]
    return alt.concat(*slots, columns=2).properties(title=heading(title, "prior of each slot"))


def plot_attention_maps(maps: AttentionMaps, title: str, subtitle: str) -> Any:
    """Plot one heat map per layer (rows) and head (columns)."""
    layers, heads = maps.weight.shape[:2]
    y_title, x_title = maps.axes
    cell = CELL
    if layers * heads > MAPS_FULL_SIZE:
        cell = CELL // 2
    panels = [
        heat_map(
            maps.weight[layer, head],
            maps.looking,
            maps.looked_at,
            (x_title, y_title),
            legend="attention",
            cell=cell,
        ).properties(title=f"layer {layer + 1}, head {head + 1}")
        for layer in range(layers)
        for head in range(heads)
    ]
    return alt.concat(*panels, columns=heads, title=heading(title, subtitle))


def plot_boundaries(boundaries: Boundaries, title: str, subtitle: str) -> Any:
    """Plot tokens on the x axis and layers on the y axis, dark where a segment ends."""
    chart = heat_map(
        boundaries.ended.flip(0),
        boundaries.layers[::-1],
        boundaries.tokens,
        ("token read", "boundary of"),
        legend="ended",
        legend_values=(0.0, 1.0),
    )
    return chart.properties(title=heading(title, subtitle))


def heat_map(
    probability: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    axes: tuple[str, str],
    *,
    legend: str = "probability",
    legend_values: Sequence[float] = (0.0, 0.05, 0.2, 0.5, 1.0),
    cell: int = CELL,
) -> alt.Chart:
    """Plot a matrix (rows, columns) with values in [0, 1]; `axes` are the titles of x and y."""
    cells = [
        {"column": column, "value": label, "p": p}
        for label, row in zip(rows, probability.tolist(), strict=True)
        for column, p in zip(columns, row, strict=True)
    ]
    x_title, y_title = axes
    angle = -45 if max(map(len, columns)) > 2 else 0
    return (
        alt.Chart(alt.InlineData(values=cells))
        .mark_rect(stroke="#eeeeee", strokeWidth=0.5)
        .encode(
            x=alt.X("column:O", sort=list(columns), title=x_title).axis(labelAngle=angle),
            y=alt.Y("value:O", sort=list(rows), title=y_title),
            color=alt.Color("p:Q", title=legend)
            .scale(type="sqrt", domain=[0, 1], range=COLOURS, interpolate="rgb")
            .legend(values=list(legend_values), format="~g"),
        )
        .properties(width={"step": cell}, height={"step": cell})
    )


def heading(title: str, subtitle: str) -> alt.TitleParams:
    """Return a title with a subtitle."""
    return alt.TitleParams(title, subtitle=subtitle, anchor="start")


def _bars(prior: Prior) -> alt.Chart:
    heights = prior.probability[0, :, 0].tolist()
    bars = [{"value": v, "p": p} for v, p in zip(prior.values, heights, strict=True)]
    return (
        alt.Chart(alt.InlineData(values=bars))
        .mark_bar()
        .encode(
            x=alt.X("value:O", sort=list(prior.values), title=prior.latent).axis(labelAngle=-45),
            y=alt.Y("p:Q", title="prior probability").scale(zero=True),
        )
        .properties(width={"step": CELL}, height=220)
    )
