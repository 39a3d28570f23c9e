"""Name the runs that a store has twice with other numbers.

A file of the archive that is copied in from another machine may have runs that the store has, too;
the last one counts (`store/archive.py`). A copy that `--again` has replaced is not named: its
records are kept beside those of the new run.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lmzoo.lab.store.archive import archived_files, read_run_file
from lmzoo.lab.store.records import DAMAGED, last_records, parse_lines

NAMED = 3
CLOSE = 1e-6


def copy_warnings(
    path: Path,
    counted: Mapping[str, tuple[Mapping[str, Any], bytes]],
    copies: Iterable[tuple[str, tuple[bytes, bytes]]],
    sign: int,
) -> Iterator[str]:
    """Yield a line if runs differ from their copies; both are a config and the records.

    `sign` turns a metric that is maximized.
    """
    others = [(run, copy) for run, copy in copies if run in counted and copy[1] != counted[run][1]]
    if not others:
        return
    replaced = {(run, data) for run, _, data in archived_files(path, [DAMAGED])}
    replaced |= {(run, read_run_file(path, run, DAMAGED)) for run, _ in others}
    found: dict[str, str] = {}
    for run, copy in others:
        config, records = counted[run]
        losses = _differing(run, records, copy[1])
        if losses is None or (run, copy[1]) in replaced:
            continue
        here, there = ("none" if x is None else f"{sign * x:.6g}" for x in losses)
        label = config["point"]["label"]
        found[run] = f"{label}, seed {config['seed']}: {here} and {there}"
    if found:
        more = f"; and {len(found) - NAMED} more" * (len(found) > NAMED)
        yield (
            "in the store twice with other numbers, of which the last file counts: "
            f"{'; '.join([*found.values()][:NAMED])}{more}"
        )


def _differing(run: str, counted: bytes, other: bytes) -> tuple[float | None, float | None] | None:
    """Return the last losses in which the records of two copies differ; None if they agree."""
    ours = _losses(run, counted)
    theirs = _losses(run, other)
    both = [(ours[key], theirs[key]) for key in ours if key in theirs]
    return next((pair for pair in reversed(both) if not _agree(*pair)), None)


def _losses(run: str, records: bytes) -> dict[tuple[str, int], float | None]:
    """Return the losses of a run by event and epoch."""
    names = {"test": "token", "epoch": "valid_token"}
    events = [event for event in last_records(parse_lines(records, run)) if event["event"] in names]
    return {(e["event"], e["epoch"]): e.get(names[e["event"]]) for e in events}


def _agree(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=CLOSE)
