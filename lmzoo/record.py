"""What is written down of a run: its identity, its folder, its lines. Standard library only.

    RUNS/<study>/study.json           the question, the points, what was chosen
    RUNS/<study>/<identity>/          one run
        config.json                   everything that decides its result, and its labels
        records.ndjson                one line per event, appended and flushed
        checkpoint.pt                 written to a temporary name and renamed
        events.out.tfevents.*         the same numbers for TensorBoard

A run's identity is the hash of what decides its result, so running it twice is a
no-op. Events, each with `event` and `epoch`:

    epoch   train_token, valid_token, valid_sentence (nats per token), seconds, tokens_per_second
    test    token, sentence, tokens, sequences, best_epoch     the test split, read once per budget
    end     status: finished | pruned | diverged | failed      and `reason`
    note    `reason`: something a reader should know, as that a checkpoint was damaged

Numbers are finite or null, never NaN: a file of records is valid JSON, line by line.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Record = dict[str, Any]

SCHEMA = 1
CONFIG, RECORDS, CHECKPOINT, STUDY = "config.json", "records.ndjson", "checkpoint.pt", "study.json"
STATUSES = ("finished", "pruned", "diverged", "failed")
DECISIVE = ("model", "recipe", "corpus", "fingerprint", "vocab", "length", "seed")
"""The parts of a run's config that decide its result."""


def identity(run: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that name what decides the run's result."""
    decisive = {"schema": SCHEMA, **{key: run[key] for key in DECISIVE}}
    text = json.dumps(decisive, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def write_json(path: Path, value: Any) -> None:
    """Write `value` so that a reader sees the old file or the new one, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


def read_json(path: Path) -> Any:
    """The JSON value of a file; None if there is no such file or it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


class RunFolder:
    """One run's folder: its config once, its records one line at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, config: Mapping[str, Any]) -> None:
        """Write the config; a folder that has one keeps it."""
        self.path.mkdir(parents=True, exist_ok=True)
        if read_json(self.path / CONFIG) is None:
            write_json(self.path / CONFIG, dict(config))

    def append(self, record: Mapping[str, Any]) -> None:
        """Append one event and flush it to the disk; non-finite numbers become null."""
        line = json.dumps({key: finite(value) for key, value in record.items()}, allow_nan=False)
        with (self.path / RECORDS).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[Record]:
        """All events, the last of equal (event, epoch) kept; a torn last line is not one."""
        kept: dict[tuple[Any, Any], Record] = {}
        for record in self._lines():
            kept[record.get("event"), record.get("epoch")] = record
        return list(kept.values())

    def mend(self) -> None:
        """Cut a torn last line off, so that the next append starts on a line of its own."""
        path = self.path / RECORDS
        if not path.exists():
            return
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with path.open("r+b") as file:
                file.truncate(whole)

    @property
    def config(self) -> dict[str, Any] | None:
        """The run's config, or None if the folder has none."""
        return read_json(self.path / CONFIG)

    @property
    def checkpoint(self) -> Path:
        """Where the run's state is kept."""
        return self.path / CHECKPOINT

    def _lines(self) -> Iterator[Record]:
        path = self.path / RECORDS
        if not path.exists():
            return
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict):
                yield record


def epochs(records: list[Record]) -> list[Record]:
    """The epoch events in order."""
    return sorted((r for r in records if r["event"] == "epoch"), key=lambda r: r["epoch"])


def ended(records: list[Record], budget: int) -> Record | None:
    """The event that ended the run for a budget of so many epochs, or None if it is owed.

    A pruned or diverged run has ended for every budget; a finished one for the epochs
    it has done; a failed one for none, as the cause may be gone.
    """
    ends = [r for r in records if r["event"] == "end"]
    for end in sorted(ends, key=lambda r: r["epoch"], reverse=True):
        if end["status"] in ("pruned", "diverged"):
            return end
        if end["status"] == "finished" and end["epoch"] >= budget:
            return end
    return None


def finite(value: Any) -> Any:
    """None for NaN and infinities, the value itself otherwise."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
