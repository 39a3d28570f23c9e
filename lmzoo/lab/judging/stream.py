"""A series of candidates, judged one after the other: `stream.jsonl` in the folder of results.

A line per candidate says its place in the series, its level, its first seed and, when it is judged,
the decision. The place is taken before the first run, so that a judge that is killed goes on, and a
candidate that is judged twice takes one place. After each keep all seeds are new: the runs that
chose the winner are not those that it is compared by.
"""

from pathlib import Path
from typing import Any, NamedTuple

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.reports import append_object, read_objects
from lmzoo.lab.statistics.stream import keep_level

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

    def __init__(self, folder: Path) -> None:
        self._file = folder / "stream.jsonl"
        self._rows: dict[str, dict[str, Any]] = {}
        rows, damaged = read_objects(self._file, frozenset({"pair", *Place._fields}))
        for row in rows:
            self._rows[row["pair"]] = row  # the last line of a pair has the decision
        if damaged or [*range(len(self._rows))] != [
            own["number"] - 1 for own in self._rows.values()
        ]:
            raise UserError(
                f"{self._file} is damaged: its levels need each place; choose another --out"
            )

    def place(self, pair: str) -> Place:
        """Return the place of a candidate; a new one is the next of the series."""
        if pair not in self._rows:
            kept = sum(row["decision"] == "keep" for row in self._rows.values())
            number = len(self._rows) + 1
            level = keep_level(number, kept)
            new = Place(number, kept, level, 1 + SEEDS * kept)
            self._write({"pair": pair, **new._asdict()})
        row = {key: value for key, value in self._rows[pair].items() if key != "pair"}
        return Place(**row)

    def decide(self, pair: str, decision: str) -> None:
        """Write the decision about a candidate."""
        if self._rows[pair]["decision"] != decision:
            self._write({**self._rows[pair], "decision": decision})

    def _write(self, row: dict[str, Any]) -> None:
        append_object(self._file, row)
        self._rows[row["pair"]] = row
