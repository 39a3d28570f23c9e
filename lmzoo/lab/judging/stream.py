"""A series of candidates, judged one after the other: `stream.jsonl` in the folder of results.

A line per candidate says its place in the series, its level, its first seed and, when it is judged,
the decision. The place is taken before the first run, so that a judge that is killed goes on, and a
candidate that is judged twice takes one place. After each keep all seeds are new: the runs that
chose the winner are not those that it is compared by.
"""

from typing import NamedTuple

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.reports import checked_line, read_objects
from lmzoo.lab.statistics.stream import keep_level
from lmzoo.lab.store.local import Store

FILE = "stream.jsonl"
SEEDS = 1000
"""Seeds of an incumbent; the next one has the following ones."""


class Place(NamedTuple):
    """The place of a candidate in a series."""

    number: int
    kept: int
    """Candidates kept before it."""
    level: float
    """It is kept if its p is lower."""
    first_seed: int
    decision: str = ""


class Stream:
    """A series of candidates, in a folder."""

    def __init__(self, store: Store) -> None:
        self._store = store
        rows, damaged = read_objects(store, FILE, frozenset({"pair", *Place._fields}))
        self._places = {row.pop("pair"): Place(**row) for row in rows}  # the last one counts
        numbers = [place.number for place in self._places.values()]
        if damaged or numbers != [*range(1, len(numbers) + 1)]:
            raise UserError(
                f"{store}/{FILE} is damaged: its levels need each place; choose another --out"
            )

    def place(self, pair: str) -> Place:
        """Return the place of a candidate; a new one is the next of the series."""
        if pair not in self._places:
            kept = sum(place.decision == "keep" for place in self._places.values())
            number = len(self._places) + 1
            self._write(pair, Place(number, kept, keep_level(number, kept), 1 + SEEDS * kept))
        return self._places[pair]

    def decide(self, pair: str, decision: str) -> None:
        """Write the decision about a candidate."""
        if self._places[pair].decision != decision:
            self._write(pair, self._places[pair]._replace(decision=decision))

    def _write(self, pair: str, place: Place) -> None:
        self._store.append(FILE, checked_line({"pair": pair, **place._asdict()}))
        self._places[pair] = place
