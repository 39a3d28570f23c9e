"""A study's folder as it lies on disk -> one frame of runs and one of events.

    runs     a row per run: its identity, point, stage, seed, what kind of number it gives
    events   a row per (run, event, epoch): the lines of all records.ndjson, as last written

All record files are joined and parsed in one pass; whose a line is, is found by counting lines.
Where a line is damaged (a run was killed while it wrote) the lines are read one by one
and the damaged ones are left out and counted; folders without a config are counted too.

The layout is documented in `lmzoo/store/records.py`.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from lmzoo.errors import UserError
from lmzoo.store.local import Store
from lmzoo.store.open import open_store
from lmzoo.store.records import CONFIG, LOSSES, RECORDS, SCHEMA, STUDY, parse_json, read_json

RUNS = pl.Schema(
    {
        "run": pl.String,
        "point": pl.String,
        "stage": pl.String,
        "seed": pl.Int64,
        "score": pl.String,
        "model": pl.String,  # JSON
        "corpus": pl.String,  # JSON
        "fingerprint": pl.String,
        "vocab": pl.Int64,
        "length": pl.Int64,
        "parameters": pl.Int64,
        "leaks": pl.String,
        "floor_token": pl.Float64,
        "floor_sentence": pl.Float64,
        "setting": pl.String,  # JSON
    }
)
EVENTS = pl.Schema(
    {
        "run": pl.String,
        "event": pl.String,
        "epoch": pl.Int64,
        "train_token": pl.Float64,
        "valid_token": pl.Float64,
        "valid_sentence": pl.Float64,
        "seconds": pl.Float64,
        "tokens_per_second": pl.Float64,
        "token": pl.Float64,
        "sentence": pl.Float64,
        "tokens": pl.Int64,
        "sequences": pl.Int64,
        "best_epoch": pl.Int64,
        "status": pl.String,
        "reason": pl.String,
    }
)


NAMES = (CONFIG, RECORDS, STUDY, LOSSES.format("*"))
"""The files that tables are made of."""
COPIED = ("run", "stage", "seed", "score", "fingerprint", "vocab", "length", "parameters", "leaks")
"""What a row of `RUNS` takes from the config as it stands."""


class Folder(NamedTuple):
    """What a study's folder holds."""

    study: dict[str, Any]
    runs: pl.LazyFrame
    events: pl.LazyFrame
    ignored: int
    """Folders that have no config."""
    damaged: int
    """Lines that are not records."""
    path: Path
    """The folder; where the study lies in a bucket, a copy of it."""


def load(path: Path) -> Folder:
    """Read a study's folder.

    Raises:
        UserError: there is no such folder, it is not a study's, or another version wrote it.
    """
    path = open_store(path).local_copy(NAMES)
    study = read_study(path)
    configs: list[dict[str, Any]] = []
    texts: list[tuple[str, bytes]] = []
    ignored = 0
    names = sorted(e.name for e in os.scandir(path) if e.is_dir() and e.name[0] != ".")
    for folder in (f"{path}/{name}" for name in names):  # a Path takes as long as its file
        config = parse_json(_bytes(folder, CONFIG))
        if not isinstance(config, dict):
            ignored += 1
            continue
        configs.append(_run(config, f"{folder}/{CONFIG}"))
        texts.append((config["run"], _bytes(folder, RECORDS)))
    events, damaged = read_events(texts)
    return Folder(study, pl.LazyFrame(configs, RUNS), events.lazy(), ignored, damaged, path)


def read_study(path: Path) -> dict[str, Any]:
    """The study's own description.

    Raises:
        UserError: see `load`.
    """
    if not path.is_dir():
        raise UserError(f"no folder {str(path)!r}; give the folder of a study, as in runs/NAME")
    study = read_json(path / STUDY)
    if not isinstance(study, dict):
        inside = sorted(file.parent.name for file in path.glob(f"*/{STUDY}"))
        hint = f"the studies inside it are: {', '.join(inside)}" if inside else "run a sweep first"
        raise UserError(f"{str(path)!r} holds no {STUDY} that can be read; {hint}")
    _same_schema(study, path / STUDY)
    return study


def read_events(texts: Iterable[tuple[str, bytes]]) -> tuple[pl.DataFrame, int]:
    """The events of all (run, lines), the last of equal (run, event, epoch), and the damaged."""
    texts = list(texts)
    try:
        frame, damaged = _at_once(texts), 0
    except pl.exceptions.ComputeError:
        frame, damaged = _line_by_line(texts)
    key = ["run", "event", "epoch"]
    return frame.drop_nulls(key).filter(pl.struct(key).is_last_distinct()), damaged


def _at_once(texts: list[tuple[str, bytes]]) -> pl.DataFrame:
    """All lines parsed in one pass, each beside its run.

    Raises:
        pl.exceptions.ComputeError: a line is damaged, or is none.
    """
    closed = [text if text.endswith(b"\n") or not text else text + b"\n" for _, text in texts]
    lines = [text.count(b"\n") for text in closed]
    frame = pl.read_ndjson(b"".join(closed), schema=EVENTS)
    if len(frame) != sum(lines):
        raise pl.exceptions.ComputeError("not every line is a record")
    runs = pl.Series([run for run, _ in texts], dtype=pl.String)
    return frame.with_columns(run=runs.gather(np.repeat(np.arange(len(texts)), lines)))


def _line_by_line(texts: list[tuple[str, bytes]]) -> tuple[pl.DataFrame, int]:
    rows, damaged = [], 0
    for run, text in texts:
        for line in filter(None, text.splitlines()):
            record = _record(line)
            if record is None:
                damaged += 1
            else:
                rows.append({**record, "run": run})
    return pl.DataFrame(rows, EVENTS, strict=False), damaged


def _record(line: bytes) -> dict[str, Any] | None:
    """The record a line holds, or None if it is damaged."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _run(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """A config as a row of `RUNS`."""
    _same_schema(config, path)
    try:
        floor = config["floor"] or {}
        return {name: config[name] for name in COPIED} | {
            "point": config["point"]["id"],
            "model": json.dumps(config["model"]),
            "corpus": json.dumps(config["corpus"]),
            "setting": json.dumps(config["setting"]),
            "floor_token": floor.get("token"),
            "floor_sentence": floor.get("sentence"),
        }
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is not the config of a study's run: {error!r}") from None


def _same_schema(written: Mapping[str, Any], path: str | Path) -> None:
    if written.get("schema") != SCHEMA:
        raise UserError(
            f"{path} has schema {written.get('schema')!r}, this version reads {SCHEMA}; "
            "rank it with the version that wrote it"
        )


def _bytes(folder: str, name: str) -> bytes:
    """A file's content; nothing if there is none."""
    try:
        with open(f"{folder}/{name}", "rb") as file:  # noqa: PTH123
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError:  # the store is away: waits for it, or says why not
        return Store(Path(folder)).read(name) or b""
