"""Attention and boundaries as pictures: one heat map for each head, one for all layers."""

from typing import Any

import altair as alt

from lmzoo.inspect.attention_maps import Maps
from lmzoo.inspect.boundaries import Boundaries
from lmzoo.inspect.plots import CELL, heading, heat_map

FEW = 2
"""Heads up to which cells are drawn at their full size."""


def maps_picture(found: Maps, title: str, subtitle: str) -> Any:
    """Layers downwards, heads from left to right; in each, who looks downwards, at what across."""
    layers, heads = found.weight.shape[:2]
    beside, below = found.axes
    cell = CELL if layers * heads <= FEW else CELL // 2
    panels = [
        heat_map(
            found.weight[layer, head], found.looking, found.looked_at, (below, beside),
            of="attention", cell=cell,
        ).properties(title=f"layer {layer + 1}, head {head + 1}")
        for layer in range(layers)
        for head in range(heads)
    ]  # fmt: skip
    return alt.concat(*panels, columns=heads, title=heading(title, subtitle))


def boundaries_picture(found: Boundaries, title: str, subtitle: str) -> Any:
    """The text from left to right, the highest layer on top, dark where a segment ended."""
    chart = heat_map(
        found.ended.flip(0), found.layers[::-1], found.tokens, ("token read", "boundary of"),
        of="ended", shown=(0.0, 1.0),
    )  # fmt: skip
    return chart.properties(title=heading(title, subtitle))
