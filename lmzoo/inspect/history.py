"""The course of gate, state and attention statistics during the training of a run.

    gates      mean, spread, saturated        of each gate of each cell
    states     norm                           of each state vector, mean over steps
    heads      entropy, ‖q‖, ‖k‖              of each head of each attention

`train --gates` appends a `gates` event to the records of a run before the first epoch, as epoch 0,
and after every epoch. The event describes the weights at that time, not the best weights.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lmzoo.inspect.summary import Summary, as_json
from lmzoo.lab.store.records import Record

EVENT = "gates"
EVENT_KEYS = ("gates", "states", "heads")
"""The statistics that change with the weights; edges depend on shapes only."""


@dataclass(frozen=True)
class Series:
    """One statistic by epoch; None where it is not finite or was not recorded."""

    module: str
    """Name of the cell or attention in the model."""
    part: str
    """The gate, state or head."""
    statistic: str
    values: list[float | None]


def event_fields(summary: Summary) -> dict[str, Any]:
    """Return the fields of a `gates` event, without event name and epoch."""
    return {key: rows for key, rows in as_json(summary).items() if key in EVENT_KEYS}


def gate_events(records: Sequence[Record]) -> list[Record]:
    """Return the `gates` events of a run by epoch."""
    return sorted((r for r in records if r["event"] == EVENT), key=lambda r: r["epoch"])


def series(events: Sequence[Record]) -> list[Series]:
    """Return every statistic of the events, with one value per event."""
    columns = [dict(_statistics(event)) for event in events]
    names = dict.fromkeys(name for column in columns for name in column)
    return [Series(*name, [column.get(name) for column in columns]) for name in names]


def _statistics(event: Record) -> Iterator[tuple[tuple[str, str, str], float | None]]:
    """Yield ((module, part, statistic), value) of one event."""
    for gate in event["gates"]:
        for statistic in ("mean", "spread", "saturated"):
            yield (gate["cell"], f"gate {gate['name']}", statistic), gate[statistic]
    for state in event["states"]:
        for number, norms in enumerate(state["norms"], 1):
            finite = None not in norms
            yield (
                (state["cell"], f"state {number}", "norm"),
                sum(norms) / len(norms) if finite else None,
            )
    for head in event["heads"]:
        keys = (("entropy", "entropy"), ("‖q‖", "query_norm"), ("‖k‖", "key_norm"))
        for statistic, key in keys:
            yield (head["layer"], f"head {head['head'] + 1}", statistic), head[key]
