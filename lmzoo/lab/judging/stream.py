"""A series of candidates, judged one after the other: `stream.jsonl` in the folder of results.

A line per candidate says its place in the series, its level, its first seed and, when it is judged,
the decision. The place is taken before the first run, so that a judge that is killed goes on, and a
candidate that is judged twice takes one place. After each keep all seeds are new: the runs that
chose the winner are not those that it is compared by. All files of the folder have lines with a
check, so that a damaged one is not taken for another.
"""

import hashlib
import json
from typing import Any, NamedTuple

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.texts import objects
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


def checked_line(row: dict[str, Any]) -> str:
    """Return an object with its check as a line of JSON."""
    return json.dumps({**row, "check": _check(row)})


def checked_object(line: str) -> dict[str, Any] | None:
    """Return the object of such a line; None if it is damaged. Earlier versions had no checks."""
    row = next(objects(line), None)
    check = row.pop("check", None) if row is not None else ""
    return row if row is not None and check in (None, _check(row)) else None


def read_objects(store: Store, name: str, keys: frozenset[str]) -> tuple[list[dict[str, Any]], int]:
    """Return the objects of a file with these keys, and the number of other lines but a cut end."""
    *lines, last = (store.read(name) or b"").decode(errors="replace").split("\n")
    rows = [checked_object(line) for line in (*lines, last)]
    good = [row for row in rows if row is not None and row.keys() == keys]
    damaged = sum(line.strip() != "" for line in lines) - len(good)
    return good, damaged + (rows[-1] in good)


def _check(row: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]
