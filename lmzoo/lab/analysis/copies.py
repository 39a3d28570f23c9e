"""Name the runs that a store has twice with other numbers.

A file of the archive that is copied in from another machine may have runs that the store has, too;
the last one counts (`store/archive.py`). A run that `--again` has replaced is not named: the
store keeps its records, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl
from polars import DataFrame, col

from lmzoo.lab.store.archive import archived_files, read_run_file
from lmzoo.lab.store.records import DAMAGED

NAMED = 3
CLOSE = 1e-6
KEY = ["run", "event", "epoch"]
LOSS = pl.coalesce("token", "valid_token").fill_null(float("inf"))
"""A run that diverged has no loss."""


def without_replaced(path: Path, copies: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return the runs, (name, records), that no later training has replaced."""
    if not copies:
        return []
    # A run that was trained again keeps its old records.
    replaced = {
        (run, archive.read(f"{run}/{name}"))
        for run, name, archive in archived_files(path, [DAMAGED])
    }
    for run, _ in copies:
        replaced.add((run, read_run_file(path, run, DAMAGED)))
    return [own for own in copies if own not in replaced]


def copy_warnings(events: DataFrame, copied: DataFrame, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a line if the events of runs differ from those of their copies."""
    if copied.is_empty():
        return
    is_measured = col("event").is_in(["test", "epoch"])
    ours = events.filter(is_measured).select(col(KEY), here=LOSS)
    theirs = copied.filter(is_measured).select(col(KEY), there=LOSS)
    both = ours.join(theirs, on=KEY, maintain_order="left")
    here = col("here")
    there = col("there")
    scale = pl.min_horizontal(here.abs(), there.abs())
    distance = (here - there).abs()
    # The difference of two infinite losses is NaN, which polars holds greater than any number.
    differ = both.filter(here != there, distance > CLOSE * scale)
    last = differ.group_by("run", maintain_order=True).last()
    found = [
        f"{names[row['run']]}: {row['here']:.6g} and {row['there']:.6g}" for row in last.to_dicts()
    ]
    if found:
        shown = "; ".join(found[:NAMED])
        more = len(found) - NAMED
        if more > 0:
            shown += f"; and {more} more"
        yield f"in the store twice with other numbers, of which the last file counts: {shown}"
