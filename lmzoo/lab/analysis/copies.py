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
        if losses and (run, copy[1]) not in replaced:
            here, there = (f"{sign * loss:.6g}" for loss in losses)
            label = config["point"]["label"]
            found[run] = f"{label}, seed {config['seed']}: {here} and {there}"
    if found:
        more = f"; and {len(found) - NAMED} more" * (len(found) > NAMED)
        yield (
            "in the store twice with other numbers, of which the last file counts: "
            f"{'; '.join([*found.values()][:NAMED])}{more}"
        )


def _differing(run: str, counted: bytes, other: bytes) -> tuple[float, float] | None:
    """Return the last losses in which the records of two copies differ; None if they agree."""
    ours = _losses(run, counted)
    theirs = _losses(run, other)
    for key in reversed([*ours]):
        if key in theirs and not math.isclose(ours[key], theirs[key], rel_tol=CLOSE):
            return ours[key], theirs[key]
    return None


def _losses(run: str, records: bytes) -> dict[tuple[str, int], float]:
    """Return the losses of a run by event and epoch; a run that diverged has an infinite one."""
    names = {"test": "token", "epoch": "valid_token"}
    events = [event for event in last_records(parse_lines(records, run)) if event["event"] in names]
    known = {(e["event"], e["epoch"]): e.get(names[e["event"]]) for e in events}
    return {key: math.inf if loss is None else loss for key, loss in known.items()}
