"""Numbers over the epochs of a training: a panel for each fact, a line for each thing."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from lmzoo.inspect.history import Series

SHARES = ("mean", "spread", "saturated")
"""What lies between 0 and 1, and is drawn on that scale."""
COLUMNS = 3


def epochs_picture(every: Sequence[Series], epochs: Sequence[int], title: str) -> Any:
    """One panel below or beside another; a line breaks where nothing was measured."""
    several = len({one.where for one in every}) > 1
    facts = dict.fromkeys(one.fact for one in every)
    panels = [
        _panel([one for one in every if one.fact == fact], epochs, fact, several=several)
        for fact in facts
    ]
    heading = alt.TitleParams(title, subtitle="over the epochs of its training", anchor="start")
    # Heads are other things than gates: colours of one panel say nothing in the next.
    return alt.concat(*panels, columns=COLUMNS, title=heading).resolve_scale(
        color="independent", y="independent"
    )


def _panel(some: list[Series], epochs: Sequence[int], fact: str, *, several: bool) -> alt.Chart:
    names = [f"{one.where}, {one.what}" if several else one.what for one in some]
    points = [
        {"epoch": epoch, "value": value, "of": name}
        for one, name in zip(some, names, strict=True)
        for epoch, value in zip(epochs, one.values, strict=True)
    ]
    y = alt.Y("value:Q", title=fact)
    y = y.scale(domain=[0, 1]) if fact in SHARES else y.scale(zero=False)
    return (
        alt.Chart(alt.InlineData(values=points))
        .mark_line(point=True)
        .encode(
            x=alt.X("epoch:Q", title="epoch").axis(tickMinStep=1, format="d"),
            y=y,
            color=alt.Color("of:N", sort=names, title=None),
        )
        .properties(width=220, height=180)
    )
