"""A heat map of what a model says of a sentence: latents, attention, boundaries.

All heat maps have the same colour scale from 0 to 1, so they can be compared. Colours follow the
square root, so that a probability of 0.05 is visible. Source: S0 (figures of latents).
"""

from collections.abc import Sequence

import altair as alt
from jaxtyping import Float
from torch import Tensor

COLOURS = ["#ffffff", "#6baed6", "#08519c", "#08306b"]
CELL = 22
"""Side of a cell in pixels."""


def heat_map(
    probability: Float[Tensor, "rows columns"],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
) -> alt.Chart:
    """Return a heat map of values in [0, 1]; `chart.save("map.png")` writes it."""
    cells = []
    for row, values in zip(rows, probability.tolist(), strict=True):
        for column, value in zip(columns, values, strict=True):
            cells.append({"column": column, "row": row, "p": value})
    scale = alt.Scale(
        type="sqrt",
        domain=[0, 1],
        range=COLOURS,
        interpolate="rgb",
    )
    colour = alt.Color("p:Q", title="probability", scale=scale)
    data = alt.InlineData(values=cells)
    chart = alt.Chart(data, title=title).mark_rect()
    chart = chart.encode(
        # Altair would sort the tokens by their names.
        x=alt.X("column:O", sort=list(columns), title=None),
        y=alt.Y("row:O", sort=list(rows), title=None),
        color=colour,
    )
    size = {"step": CELL}
    return chart.properties(width=size, height=size)
