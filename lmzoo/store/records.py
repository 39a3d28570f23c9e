"""What is written down of a run: its identity, its folder, its lines. Standard library only.

    RUNS/<study>/study.json           the question, what was asked, the points, what was chosen
    RUNS/<study>/<identity>/          one run
        config.json                   everything that decides its result, and its labels
        records.ndjson                one line per event, appended and flushed
        checkpoint.pt                 the last epoch's state, put in place whole
        checkpoint-previous.pt        the one before it, should the last be damaged
        test-EPOCH.npy                float32 (2, N): each test sequence's NLL in nats, its tokens
        events.out.tfevents.*         the same numbers for TensorBoard

A run's identity is the hash of what decides its result, so running it twice is a
no-op. RUNS is a folder or a prefix of a bucket (`lmzoo/store/local.py`). Events, each with
`event` and `epoch`:

    epoch   train_token, valid_token, valid_sentence (nats per token), seconds, tokens_per_second,
            host: the machine that trained it, which need not be the one that wrote the config
    test    token, sentence, tokens, sequences, best_epoch     the test split, read once per budget
    end     status: finished | pruned | diverged | failed      and `reason`
    note    `reason`: something a reader should know, as that a checkpoint was damaged
    gates   gates, states, heads: facts of the weights as they stood after this epoch, 0 before the
            first (`lmzoo/inspect/history.py`); only where `train --gates` asked for them

Numbers are finite or null, never NaN: a file of records is valid JSON, line by line.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmzoo.errors import UserError
from lmzoo.store.local import Store
from lmzoo.store.open import open_store

Record = dict[str, Any]

SCHEMA = 1
CONFIG, RECORDS, STUDY = "config.json", "records.ndjson", "study.json"
CHECKPOINT, PREVIOUS = "checkpoint.pt", "checkpoint-previous.pt"
LOSSES = "test-{}.npy"
STATUSES = ("finished", "pruned", "diverged", "failed")
DECISIVE = ("model", "recipe", "corpus", "fingerprint", "vocab", "length", "seed")
"""The parts of a run's config that decide its result."""


def run_identity(run: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that name what decides the run's result."""
    decisive = {"schema": SCHEMA, **{key: run[key] for key in DECISIVE}}
    text = json.dumps(decisive, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def write_json(path: Path, value: Any) -> None:
    """Write `value` so that a reader sees the old file or the new one, never a part."""
    Store(path.parent).write(path.name, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """The value as the text of a file."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    """The JSON value of a file; None if there is no such file or it is not JSON."""
    return parse_json(Store(path.parent).read(path.name))


def parse_json(data: bytes | None) -> Any:
    """The JSON value of these bytes; None if there are none or they are not JSON."""
    try:
        return None if data is None else json.loads(data)
    except ValueError:
        return None


class RunFolder:
    """One run's folder: its config once, its records one line at a time."""

    def __init__(self, where: Store | Path | str) -> None:
        self.store = open_store(where)
        self.path = self.store.path

    def create(self, config: Mapping[str, Any]) -> None:
        """Write the config; a folder that has one that can be read keeps it."""
        if self.config is None:
            self.store.write(CONFIG, json_bytes(dict(config)))

    def append(self, record: Mapping[str, Any]) -> None:
        """Append one event and flush it to the disk; non-finite numbers become null."""
        line = json.dumps(
            {key: replace_non_finite(value) for key, value in record.items()}, allow_nan=False
        )
        self.store.append(RECORDS, line)

    def records(self) -> list[Record]:
        """All events, the last of equal (event, epoch) kept; a torn last line is not one."""
        kept: dict[tuple[Any, Any], Record] = {}
        for line in (self.store.read(RECORDS) or b"").splitlines():
            record = parse_json(line)
            if isinstance(record, dict):
                kept[record.get("event"), record.get("epoch")] = record
        return list(kept.values())

    def drop_checkpoints(self) -> None:
        """Delete the state of a run that will not go on."""
        self.store.delete(CHECKPOINT, PREVIOUS)

    @property
    def config(self) -> dict[str, Any] | None:
        """The run's config, or None if the folder has none that can be read."""
        config = parse_json(self.store.read(CONFIG))
        return config if isinstance(config, dict) else None

    @property
    def checkpoint(self) -> Path:
        """Where the run's state is kept."""
        return self.path / CHECKPOINT

    def losses(self, epoch: int) -> Path:
        """Where the test losses of this budget are kept, a number for each sequence."""
        return self.path / LOSSES.format(epoch)


def epoch_records(records: list[Record]) -> list[Record]:
    """The epoch events in order."""
    return sorted((r for r in records if r["event"] == "epoch"), key=lambda r: r["epoch"])


def find_end(records: list[Record], budget: int) -> Record | None:
    """The event that ended the run for a budget of so many epochs, or None if it is owed.

    What came behind the budget is no part of it: a run that was pruned or diverged only
    there has finished here. A failed one is still owed, as the cause may be gone.
    """
    ends = [r for r in records if r["event"] == "end" and r["status"] != "failed"]
    for end in sorted(ends, key=lambda r: r["epoch"], reverse=True):
        # Nothing is pruned at the end of its budget: that was a rung of a larger one.
        at_the_end = end["epoch"] == budget and end["status"] != "diverged"
        if end["epoch"] > budget or at_the_end:
            return {**end, "status": "finished"}
        if end["status"] != "finished":
            return end
    return None


def is_pending(folder: RunFolder, budget: int, *, test: bool) -> bool:
    """Whether anything of this run is still to be done for the budget; raises as `owes` does."""
    return records_pending(folder.records(), budget, test=test)


def records_pending(records: list[Record], budget: int, *, test: bool) -> bool:
    """`owed`, of records that have been read.

    Raises:
        UserError: a test is owed, and the weights to be tested are behind the budget.
    """
    end = find_end(records, budget)
    tested = any(r["event"] == "test" and r["epoch"] == budget for r in records)
    untested = test and not tested and (end is None or end["status"] == "finished")
    done = max((r["epoch"] for r in epoch_records(records)), default=0)
    if untested and done > budget:
        raise UserError(
            f"a run was trained for {done} epochs and not tested at {budget}, which cannot be "
            f"made up; ask for {done} epochs or more, or give another store"
        )
    return untested or end is None


def replace_non_finite(value: Any) -> Any:
    """None for NaN and infinities, also inside lists and mappings; all else as it is."""
    if isinstance(value, list):
        return [replace_non_finite(one) for one in value]
    if isinstance(value, dict):
        return {key: replace_non_finite(one) for key, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
