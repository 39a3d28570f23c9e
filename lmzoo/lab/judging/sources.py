"""Read results that other programs wrote into one frame: one row per run, or per run and step.

    text                CSV in any of its dialects, JSON lines, JSON of pandas, W&B, Hugging Face;
                        compressed by gzip, bzip2 or xz; from a file, a pipe or `-`
    .parquet            its own columns
    SQLite, journal     a storage of Optuna (trials) or MLflow (runs), sqlite:///FILE, too
    a folder            runs of MLflow; event files of TensorBoard; else files of one kind, such as
                        those of Ray Tune, Lightning or Hugging Face, with `run`, `part1`, ... of
                        their path

What a source knows stays: states and deletions are columns, the direction of a metric is a field.
"""

import bz2
import csv
import gzip
import json
import lzma
import math
import re
import shlex
import sqlite3
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.texts import (
    RUN,
    TORN,
    Row,
    Source,
    decoded,
    frame_of,
    json_lines,
    read_csv,
    read_json,
)  # fmt: skip
from lmzoo.lab.judging.trackers import (
    read_boards,
    read_database,
    read_journal,
    read_mlflow_run,
    read_settings,
)  # fmt: skip

OPENERS = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ": lzma.decompress}
PARTS = {
    "result.json": "training_iteration", "progress.csv": "training_iteration",
    "trainer_state.json": "step", "metrics.csv": "step", "wandb-summary.json": None,
    "all_results.json": None,
}  # fmt: skip
"""Files of one run in a folder: Ray Tune, Hugging Face, Lightning, W&B -> the column of the step.
The first kind counts."""
TABLES = {".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet"}
SETTINGS = ("params.json", "hparams.yaml", "config.yaml")
"""Files next to them that have the settings of the run."""


def read_results(path: str | Path) -> Source:
    """Return the results of a file or a folder; `-` is stdin.

    Raises:
        UserError: It does not exist, cannot be read, or has no rows.
    """
    text = str(path)
    bare = re.sub("^sqlite:/+", "", text)  # a Path of sqlite:///FILE has a single slash
    file = Path(bare if bare == text or Path(bare).exists() else f"/{bare}")
    if re.match("(https?|s3|gs):/", text):
        raise UserError(f"{text} is an address; write: curl ADDRESS | lmzoo judge -")
    if text != "-" and not file.exists():
        raise UserError(f"no file or folder {str(file)!r}; give a CSV, JSON lines, Parquet, ...")
    try:
        if text == "-":
            source = _content(sys.stdin.buffer.read(), file)
        else:
            source = _folder(file) if file.is_dir() else _content(file.read_bytes(), file)
    except UserError as error:
        raise UserError(f"{file}: {error}".replace(f"{file}: {file}", str(file))) from error
    except (
        OSError, ValueError, RecursionError, EOFError, TypeError, KeyError, csv.Error,
        lzma.LZMAError, sqlite3.Error, pl.exceptions.PolarsError,
    ) as error:  # fmt: skip
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"cannot read {file}: {reason}") from error
    if source.frame.is_empty():
        raise UserError(f"{file} has no rows of results")
    return source


def as_source(results: Any) -> Source:
    """Return the source of a polars or pandas frame, columns, rows or a path."""
    if isinstance(results, pl.DataFrame):
        return Source(results)
    if isinstance(results, str | Path):
        return read_results(results)
    if isinstance(results, Mapping):
        return Source(pl.DataFrame({str(k): list(v) for k, v in results.items()}, strict=False))
    if not (hasattr(results, "columns") and hasattr(results, "__getitem__")):
        return Source(frame_of(results))
    names = [str(name) for name in results.columns]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"two columns of the frame are named {twice[0]!r}; rename one")
    columns = {str(name): results[name].tolist() for name in results.columns}
    no_value = {k: [None if _is_nan(v) else v for v in own] for k, own in columns.items()}
    nans = sum(map(_is_nan, (v for own in columns.values() for v in own)))
    said = ["NaN in a pandas frame is a missing value; a polars frame tells it from a diverged run"]
    return Source(pl.DataFrame(no_value, strict=False), notes=said if nans else [])


def _content(content: bytes, file: Path) -> Source:
    """Return the source of a file, by its first bytes; the suffix decides between texts."""
    name = file
    while opened := next((own for mark, own in OPENERS.items() if content.startswith(mark)), None):
        content, name = opened(content), name.with_suffix("")
    if content.startswith(b"SQLite format 3"):
        if name != file or str(file) == "-":
            raise UserError("a database is read from a file of its own; unpack it first")
        return read_database(file)
    if content.startswith(b"PAR1"):
        return Source(_unnested(pl.read_parquet(content)))
    if content.startswith(b"PK\x03\x04"):
        raise UserError("a workbook or an archive is not read; save the table as CSV")
    text = decoded(content)
    if text.startswith('{"op_code"'):
        return read_journal([row for row in json_lines(text) if row is not TORN])
    if name.suffix.lower() in (".json", ".jsonl", ".ndjson"):
        return read_json(text)
    if text.lstrip()[:1] in ("{", "[") and name.suffix.lower() not in (".csv", ".tsv"):
        return read_json(text)
    return read_csv(text)


def _unnested(frame: pl.DataFrame) -> pl.DataFrame:
    nested = any(dtype.is_nested() for dtype in frame.schema.values())
    return frame_of(frame.to_dicts()) if nested else frame


def _folder(path: Path) -> Source:
    if (path / "study.json").exists():
        raise UserError(f"{path} is a study of lmzoo; use `lmzoo rank {shlex.quote(str(path))}`")
    if (path / "mlflow.db").exists():
        return read_database(path / "mlflow.db")
    runs = sorted(file.parent for file in path.glob("**/meta.yaml"))
    if runs := [run for run in runs if (run / "metrics").is_dir()]:
        rows = sorted(map(read_mlflow_run, runs), key=lambda row: row.pop("started"))
        return Source(frame_of(rows))
    files = sorted(file for file in path.glob("**/*") if file.is_file())
    for name in PARTS:
        if own := [file for file in files if file.name == name]:
            return _files(own, path, whole=True)
    if boards := sorted({file.parent for file in files if "tfevents" in file.name}):
        return Source(frame_of(read_boards(boards, path)))
    tables = [file for file in files if file.suffix.lower() in TABLES]
    if len({file.suffix for file in tables}) == 1:
        return _files(tables, path, whole=False)
    raise UserError(
        f"{path} has neither runs of MLflow, Tune, Lightning or Hugging Face, nor event files of "
        f"TensorBoard, nor tables of one kind ({len(tables)} tables)"
    )


def _files(files: Sequence[Path], root: Path, *, whole: bool) -> Source:
    """Return the rows of files of one kind; `whole`: each file is a run."""
    rows: list[Row] = []
    notes: list[str] = []
    states = _tune_states(root)
    for file in files:
        place = file.relative_to(root).parent if whole else file.relative_to(root).with_suffix("")
        parts = [part for part in place.parts if not re.fullmatch(r"checkpoint[-_]\d+", part)]
        own: Row = {RUN: "/".join(parts) or root.name}
        own |= {f"part{i}": part for i, part in enumerate(parts, 1)}
        own |= dict(part.split("=", 1) for part in parts if re.fullmatch(r"\w+=[^,=]*", part))
        for name in SETTINGS if whole else ():
            own |= read_settings(file.with_name(name))
        content = file.read_bytes()
        try:
            found = _content(content, file) if content.strip() else None
        except UserError as error:
            raise UserError(f"{file}: {error}") from error
        read = found.frame.to_dicts() if found else [{}]
        notes += found.notes if found else []
        for row in read:
            row = {**own, **{k: v for k, v in row.items() if v is not None}}
            trial = row.get("trial_id") or next((t for t in states if f"_{t}_" in own[RUN]), None)
            rows.append(row | ({"status": states[trial]} if trial in states else {}))
    step = PARTS[files[0].name] if whole else None
    frame = frame_of(rows)
    return Source(frame, step=step if step in frame.columns else None, notes=notes)


def _tune_states(root: Path) -> dict[str, str]:
    """Return the state of each trial of Ray Tune; the newest file of its experiment counts."""
    states: dict[str, str] = {}
    for file in sorted(root.glob("**/experiment_state-*.json")):
        for trial, *_ in json.loads(file.read_text(encoding="utf-8")).get("trial_data", []):
            own = json.loads(trial) if isinstance(trial, str) else trial
            states[own["trial_id"]] = own["status"]
    return states


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
