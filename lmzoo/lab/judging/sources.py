"""Read results that other programs wrote into one frame: one row per run, or per run and step.

docs/how/judge.md lists the sources and their columns. What a source knows stays: states and
deletions are columns, the direction of a metric is a field.
"""

import bz2
import contextlib
import gzip
import json
import lzma
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from polars import selectors

from lmzoo.base.errors import UserError
from lmzoo.base.foreign import below
from lmzoo.lab.judging.texts import (
    RUN,
    Row,
    Source,
    decoded,
    frame_of,
    path_columns,
    read_csv,
    read_json,
)  # fmt: skip
from lmzoo.lab.judging.trackers import (
    read_boards,
    read_database,
    read_journal,
    read_mlflow_run,
    read_settings,
    read_wandb_log,
)  # fmt: skip

OPENERS = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ": lzma.decompress}
FRAMES = {b"PAR1": pl.read_parquet, b"ARROW1": pl.read_ipc}
"""First bytes of a file -> how it is read."""
PARTS = {
    "result.json": "training_iteration", "progress.csv": "training_iteration",
    "trainer_state.json": "step", "metrics.csv": "step", "wandb-summary.json": None,
    "all_results.json": None, "metrics.json": "step", "progress.txt": None, "scalars.json": "step",
    "training.log": "epoch",
}  # fmt: skip
"""Files of one run: Ray Tune, Hugging Face, ..., Spinning Up, mmengine, Keras -> its step.
The first kind counts."""
TABLES = {
    ".csv": ".csv", ".tsv": ".tsv", ".parquet": ".parquet",
    ".json": ".json", ".jsonl": ".json", ".ndjson": ".json",
}  # fmt: skip
"""Suffix of a table -> its kind."""
SETTINGS = (
    "params.json", "hparams.yaml", "config.yaml", "config.json", "args.json",
    ".hydra/config.yaml", "run.json",
)  # fmt: skip
"""Files next to them that have the settings of the run."""
RUN_MARKS = ("params.json", "hparams.yaml", ".hydra/config.yaml", "run.json")
"""Those of them that only the folder of a run has."""


def read_results(path: str | Path) -> Source:
    """Return the results of a file, a folder or stdin (`-`); a `UserError` if it cannot be read."""
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
        text = f"{file}: {error}".replace(f"{file}: {file}", str(file))
        raise UserError(" ".join(text.split())) from error
    except Exception as error:  # readers of damaged files raise any
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
    if not hasattr(results, "isna"):
        return Source(frame_of(results))
    names = Counter(str(name) for name in results.columns)
    if twice := [name for name, count in names.items() if count > 1]:
        raise UserError(f"two columns of the frame are named {twice[0]!r}; rename one")
    nans = results.isna()
    said = ["NaN in a pandas frame is a missing value; a polars frame tells it from a diverged run"]
    plain = results.astype(object).where(~nans, None)
    columns = {str(name): plain[name].tolist() for name in results.columns}
    return Source(pl.DataFrame(columns, strict=False), notes=said if nans.any(axis=None) else [])


def _content(content: bytes, file: Path) -> Source:
    """Return the source of a file, by its first bytes; the suffix decides between texts."""
    name = file
    while opened := next((own for mark, own in OPENERS.items() if content.startswith(mark)), None):
        content, name = opened(content), name.with_suffix("")
    if content.startswith(b"SQLite format 3"):
        if name != file or str(file) == "-":
            raise UserError("a database is read from a file of its own; unpack it first")
        return read_database(file)
    for mark, read in FRAMES.items():
        if content.startswith(mark):
            with _quiet():
                frame = read(content)
            frame = frame.with_columns(
                selectors.binary().map_elements(lambda b: b.decode(errors="replace"), pl.String)
            )
            nested = any(dtype.is_nested() for dtype in frame.schema.values())
            return Source(frame_of(frame.to_dicts()) if nested else frame)
    if content.startswith(b"PK\x03\x04"):
        raise UserError("a workbook or an archive is not read; save the table as CSV")
    if content.startswith(b'{"op_code"'):
        return read_journal(content)
    text = decoded(content)
    is_json = text.lstrip()[:1] in ("{", "[") and name.suffix.lower() not in (".csv", ".tsv")
    is_json |= bool(re.match(r'\s*(\[\s*)?\{\s*"', text))
    return read_json(text) if is_json or _kind(name) == ".json" else read_csv(text)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what polars prints about a damaged file from the terminal; its panic is an error."""
    stderr = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    except pl.exceptions.PanicException as error:
        raise ValueError("it is damaged") from error
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _kind(file: Path) -> str:
    """Return the suffix of a table, without that of its compression; "" if it is none."""
    suffixes = [own.lower() for own in file.suffixes]
    while suffixes and suffixes[-1] in (".gz", ".bz2", ".xz"):
        suffixes.pop()
    return TABLES.get(suffixes[-1], "") if suffixes else ""


def _folder(path: Path) -> Source:
    if (path / "study.json").exists():
        raise UserError(f"{path} is a study of lmzoo; use `lmzoo rank {shlex.quote(str(path))}`")
    for link in filter(Path.is_symlink, path.glob("**/*")):
        below(path, link.relative_to(path).as_posix())
    if (path / "mlflow.db").exists():
        return read_database(path / "mlflow.db")
    if (source := _mlflow_runs(path)) is not None:
        return source
    files = sorted(file for file in path.glob("**/*") if file.is_file())
    hidden = re.compile(r"\.|latest-run$")  # the latter is a link to a run of W&B
    files = [f for f in files if not any(map(hidden.match, f.relative_to(path).parts))]
    if logs := [file for file in files if file.suffix == ".wandb"]:
        return Source(frame_of(path_columns(f.parent, path) | read_wandb_log(f) for f in logs))
    for name in PARTS:
        if own := [file for file in files if file.name == name]:
            source, known = _files(own, path, PARTS[name], whole=True), {f.parent for f in own}
            left = [f for f in files if f.name in PARTS or "tfevents" in f.name]
            if left := [f for f in left if f.parent not in known]:
                source.notes.append(f"{name} is read; not read: {len(left)} such as {left[0]}")
            return source
    if boards := sorted({file.parent for file in files if "tfevents" in file.name}):
        return Source(frame_of(read_boards(boards, path)))
    tables = [file for file in files if _kind(file)]
    tables = [file for file in tables if file.name not in SETTINGS] or tables
    kinds = Counter(map(_kind, tables))
    if len(kinds) == 1:
        return _files(tables, path, None, whole=False)
    raise UserError(
        f"{path} has neither runs of MLflow, W&B, Tune, Lightning or Hugging Face, nor event files "
        f"of TensorBoard, nor tables of one kind ({dict(kinds) or 'none'}): give a folder of one"
    )


def _mlflow_runs(path: Path) -> Source | None:
    """Return the runs that MLflow wrote as files; None if there is none."""
    runs = {f.parent for f in path.glob("**/meta.yaml") if (f.parent / "metrics").is_dir()}
    if not runs:
        return None
    # And those whose meta.yaml is lost, but no logged models of MLflow 3.
    runs |= {f.parent for f in path.glob("**/metrics/") if (f.parent / "params").is_dir()}
    rows: list[Row] = []
    for run in sorted(run for run in runs if run.parent.name != "models"):
        try:
            rows.append(read_mlflow_run(run))
        except Exception as error:
            raise UserError(f"{run} has a damaged file: {error}; delete it") from error
    rows.sort(key=lambda row: row.pop("started"))
    return Source(frame_of(rows))


def _files(files: Sequence[Path], root: Path, step: str | None, *, whole: bool) -> Source:
    """Return the rows of files of one kind; `whole`: each folder is a run."""
    rows: list[Row] = []
    notes: list[str] = []
    states = _tune_states(root)
    for file in files:
        own = path_columns(file.parent if whole else file.with_suffix(""), root)
        content = file.read_bytes()
        try:
            for name in SETTINGS:
                own |= read_settings(file.parent / name) if name != file.name else {}
            found = _content(content, file) if content.strip() else Source(frame_of([{}]))
        except Exception as error:
            raise UserError(f"{file} and its settings: {error}") from error
        notes += found.notes
        failed = {"error": "error.txt"} if file.with_name("error.txt").exists() else {}
        if "history" in file.name and "epoch" not in found.frame.columns:  # of Keras, in order
            found.frame = found.frame.with_row_index("epoch")
        for row in found.frame.to_dicts() or [{}]:
            row = {**own, **{k: v for k, v in row.items() if v is not None}}
            if step == "training_iteration":
                row.pop("done", None)  # False in the last row of a function of Ray Tune
            trial = row.get("trial_id") or next((t for t in states if f"_{t}_" in own[RUN]), None)
            rows.append(row | ({"status": states[trial]} if trial in states else failed))
    known = {folder for file in files for folder in file.parents}
    for mark in RUN_MARKS:  # runs that ended before they wrote a result
        for file in sorted(root.glob(f"**/{mark}")):
            folder = file.parent.parent if ".hydra" in mark else file.parent
            if folder not in known:
                rows.append(path_columns(folder, root) | read_settings(file))
    frame = frame_of(rows)
    return Source(frame, step=step if step in frame.columns else None, notes=notes)


def _tune_states(root: Path) -> dict[str, str]:
    """Return the state of each trial of Ray Tune; the newest file of its experiment counts."""
    states: dict[str, str] = {}
    for file in sorted(root.glob("**/experiment_state-*.json")):
        try:
            for trial, *_ in json.loads(file.read_text(encoding="utf-8")).get("trial_data", []):
                own = json.loads(trial) if isinstance(trial, str) else trial
                states[own["trial_id"]] = own["status"]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{file} has no states of trials: it is damaged ({error})") from error
    return states


def crash_test() -> pl.DataFrame:
    """Return the trainings of docs/results/crash_test.md, one row each; it has the columns.

    A `UserError` says that only a checkout of the repository has the file.
    """
    file = Path(__file__).parents[3] / "docs/results/crash_test.parquet"
    if not file.is_file():
        raise UserError(f"no file {file}; only a checkout of the repository has it")
    return pl.read_parquet(file)
