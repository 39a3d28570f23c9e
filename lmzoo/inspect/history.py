"""How gates, states and attention changed while a run was trained, as its records tell.

    gates      mean, spread, saturated        of each gate of each cell
    states     norm                           of each vector carried, mean over steps
    heads      entropy, ‖q‖, ‖k‖              of each head of each attention

`train --gates` writes an event `gates` before the first epoch, numbered 0, and after every
one, about the weights as they then are; what is told of a whole run is about its best.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lmzoo.inspect.summary import Found, plain
from lmzoo.store.records import Record

EVENT = "gates"
KEPT = ("gates", "states", "heads")
"""What changes with the weights: edges are a matter of shapes."""


@dataclass(frozen=True)
class Series:
    """One number of one thing, epoch by epoch; None where it was not finite or not measured."""

    where: str
    """The cell or the attention, as the model names it."""
    what: str
    fact: str
    values: list[float | None]


def facts(found: Found) -> dict[str, Any]:
    """What an event holds of one look, but for the event's name and epoch."""
    return {key: rows for key, rows in plain(found).items() if key in KEPT}


def measured(records: Sequence[Record]) -> list[Record]:
    """The events of a run that hold a look, in order of their epochs."""
    return sorted((r for r in records if r["event"] == EVENT), key=lambda r: r["epoch"])


def series(events: Sequence[Record]) -> list[Series]:
    """All numbers of these events, each as long as there are events."""
    columns = [dict(_numbers(event)) for event in events]
    named = dict.fromkeys(name for column in columns for name in column)
    return [Series(*name, [column.get(name) for column in columns]) for name in named]


def _numbers(event: Record) -> Iterator[tuple[tuple[str, str, str], float | None]]:
    """((where, what, fact), number) of one epoch."""
    for gate in event["gates"]:
        for fact in ("mean", "spread", "saturated"):
            yield (gate["cell"], f"gate {gate['name']}", fact), gate[fact]
    for state in event["states"]:
        for number, norms in enumerate(state["norms"], 1):
            finite = None not in norms
            yield (
                (state["cell"], f"state {number}", "norm"),
                sum(norms) / len(norms) if finite else None,
            )
    for head in event["heads"]:
        named = (("entropy", "entropy"), ("‖q‖", "query_norm"), ("‖k‖", "key_norm"))
        for fact, key in named:
            yield (head["layer"], f"head {head['head'] + 1}", fact), head[key]
