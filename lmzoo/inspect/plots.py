"""Latents as pictures: heat maps of values by tokens or positions, bars where there is one axis.

Colour runs from 0 to 1 in every picture, so that pictures can be laid side by side; it
goes with the square root, since a probability of 0.05 among many is worth seeing.

S0 (its figures of latents).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
from torch import Tensor

from lmzoo.inspect.posterior import Posterior, Prior

SHADES = ["#ffffff", "#6baed6", "#08519c", "#08306b"]
CELL = 22
"""Side of a cell, in pixels before scaling."""


def posterior_picture(found: Posterior, title: str, subtitle: str) -> alt.Chart:
    """Heat map: predicted tokens from left to right, the latent's values downwards."""
    chart = heat_map(
        found.probability, found.values, found.tokens, ("predicted token", found.latent)
    )
    return chart.properties(title=heading(title, subtitle))


def prior_picture(found: Prior, title: str, subtitle: str) -> Any:
    """Bars, a heat map by position, or one heat map for each slot."""
    over = heading(title, subtitle)
    if not found.by_position:
        return _bars(found).properties(title=over)
    positions = [str(t + 1) for t in range(found.probability.shape[2])]
    panels = [
        heat_map(slot, found.values, positions, ("position of the predicted token", found.latent))
        for slot in found.probability
    ]
    if len(panels) == 1:
        return panels[0].properties(title=over)
    named = [
        panel.properties(title=f"slot {n}").encode(y=panel.encoding.y.title(f"source of slot {n}"))
        for n, panel in enumerate(panels, 1)
    ]
    return alt.concat(*named, columns=2).properties(title=heading(title, "prior of each slot"))


def save_png(chart: Any, path: Path) -> None:
    """Write the chart at twice its size in pixels."""
    chart.save(str(path), format="png", scale_factor=2)


def heat_map(
    probability: Tensor,
    values: Sequence[str],
    columns: Sequence[str],
    axes: tuple[str, str],
    *,
    of: str = "probability",
    shown: Sequence[float] = (0.0, 0.05, 0.2, 0.5, 1.0),
    cell: int = CELL,
) -> alt.Chart:
    """Values downwards, columns across; `axes` names what is below and what is beside.

    Shades are `of` something; the legend has those of the numbers `shown`.
    """
    cells = [
        {"column": column, "value": value, "p": p}
        for value, row in zip(values, probability.tolist(), strict=True)
        for column, p in zip(columns, row, strict=True)
    ]
    below, beside = axes
    angle = -45 if max(map(len, columns)) > 2 else 0
    return (
        alt.Chart(alt.InlineData(values=cells))
        .mark_rect(stroke="#eeeeee", strokeWidth=0.5)
        .encode(
            x=alt.X("column:O", sort=list(columns), title=below).axis(labelAngle=angle),
            y=alt.Y("value:O", sort=list(values), title=beside),
            color=alt.Color("p:Q", title=of)
            .scale(type="sqrt", domain=[0, 1], range=SHADES, interpolate="rgb")
            .legend(values=list(shown), format="~g"),
        )
        .properties(width={"step": cell}, height={"step": cell})
    )


def _bars(found: Prior) -> alt.Chart:
    heights = found.probability[0, :, 0].tolist()
    bars = [{"value": v, "p": p} for v, p in zip(found.values, heights, strict=True)]
    return (
        alt.Chart(alt.InlineData(values=bars))
        .mark_bar()
        .encode(
            x=alt.X("value:O", sort=list(found.values), title=found.latent).axis(labelAngle=-45),
            y=alt.Y("p:Q", title="prior probability").scale(zero=True),
        )
        .properties(width={"step": CELL}, height=220)
    )


def heading(title: str, subtitle: str) -> alt.TitleParams:
    """Two lines over a picture."""
    return alt.TitleParams(title, subtitle=subtitle, anchor="start")
