"""Read results that other programs wrote into one frame: one row per run, or per run and step.

docs/how/judge.md lists the sources and their columns. What a source knows stays: states and
deletions are columns, the direction of a metric is a field.
"""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import math
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.base.foreign import below, unpacked
from lmzoo.lab.analysis.study_parquet import polars_errors
from lmzoo.lab.judging.scans import large_table
from lmzoo.lab.judging.texts import (
    CHECKPOINT,
    KNOWN_NAMES,
    RUN,
    SPLIT,
    STATE,
    STEPS,
    Row,
    RunParts,
    Source,
    decoded,
    frame_of,
    objects_of,
    place_of,
    read_csv,
    read_json,
    source_of,
)  # fmt: skip
from lmzoo.lab.judging.trackers import (
    read_boards,
    read_database,
    read_journal,
    read_mlflow_run,
    read_settings,
    read_wandb_logs,
)  # fmt: skip

OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
FRAMES = {b"PAR1": pl.read_parquet, b"ARROW1": pl.read_ipc}
"""First bytes of a file -> how it is read."""
PARTS = KNOWN_NAMES["parts"]
SETTINGS = KNOWN_NAMES["settings"]
RUN_MARKS = KNOWN_NAMES["run_marks"]


def read_results(path: str | Path, question: Any = None) -> Source:
    """Return the results of a file, a folder or stdin (`-`); a `UserError` if it cannot be read.

    Of a large table, only the columns that the question needs are read.
    """
    text = str(path)
    file = Path(text)
    if re.match("(https?|s3|gs):/", text):
        raise UserError(f"{text} is an address; write: curl ADDRESS | lmzoo judge -")
    if text != "-" and not file.exists():
        raise UserError(f"no file or folder {str(file)!r}; give a CSV, JSON lines, Parquet, ...")
    try:
        if text == "-":
            source = _content(sys.stdin.buffer.read(), file)
        else:
            large = None
            if question is not None:
                large = large_table(file, question)
            source = large or (
                _folder(file) if file.is_dir() else _content(file.read_bytes(), file)
            )
    except UserError as error:
        text = f"{file}: {error}".replace(f"{file}: {file}", str(file))
        raise UserError(" ".join(text.split())) from error
    except ImportError as error:
        raise UserError(f"{file} needs {error.name}: pip install {error.name}") from None
    except Exception as error:  # readers of damaged files raise any
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"cannot read {file}: {reason}") from error
    if source.frame.is_empty():
        raise UserError(f"{file} has no rows of results")
    return source


def as_source(given: Any, question: Any = None) -> Source:
    """Return the source of a polars or pandas frame, columns, rows or a path."""
    results: Any = given.collect() if isinstance(given, pl.LazyFrame) else given
    if hasattr(results, "experiment_path"):  # a ResultGrid of Ray Tune, which has no states
        results = results.experiment_path
    if isinstance(results, pl.DataFrame):
        return _of_frame(results)
    is_series = hasattr(results, "dtype") and getattr(results, "ndim", 1) == 1
    if is_series or not (hasattr(results, "__iter__") or isinstance(results, Path)):
        raise UserError(f"results are {results!r:.60}; give a frame, columns, rows or a path")
    if isinstance(results, str | Path):
        return read_results(results, question)
    if isinstance(results, Mapping):
        if all(isinstance(own, Mapping) for own in results.values()):  # of LightGBM and XGBoost
            return Source(frame_of(objects_of(results)))
        for name, own in results.items():
            if not hasattr(own, "__iter__"):
                raise UserError(f"column {name!r} is {own!r:.60}; give a list of values")
        return _of_frame(pl.DataFrame({str(k): list(v) for k, v in results.items()}, strict=False))
    if not hasattr(results, "isna"):
        return Source(frame_of(results))
    if any(name is not None for name in results.index.names):
        results = results.reset_index()
    results = results.rename(columns=str)
    twice = results.columns[results.columns.duplicated()]
    if len(twice):
        raise UserError(f"two columns of the frame are named {twice[0]!r}; rename one")
    nans = results.isna()
    columns = results.astype(object).where(~nans, None).to_dict("list")
    source = Source(pl.DataFrame(columns, strict=False))
    if nans.any(axis=None):
        source.notes.append(
            "NaN in a pandas frame is a missing value; a polars frame tells it from a diverged run"
        )
    return source


def _content(content: bytes, file: Path) -> Source:
    """Return the source of a file, by its first bytes; the suffix decides between texts."""
    name = file
    for _ in range(2):  # packed twice; there are files that unpack to themselves
        for mark, opened in OPENERS.items():
            if content.startswith(mark):
                content = unpacked(opened(io.BytesIO(content)), len(content))
                name = name.with_suffix("")
    if content.startswith(b"SQLite format 3"):
        if name != file or str(file) == "-":
            raise UserError("a database is read from a file of its own; unpack it first")
        return read_database(file)
    for mark, read in FRAMES.items():
        if content.startswith(mark):
            with polars_errors():
                frame = read(content)
            return _of_frame(frame)
    if content.startswith(b"PK\x03\x04"):
        raise UserError("a workbook or an archive is not read; save the table as CSV")
    if content.startswith(b'{"op_code"'):
        return read_journal(content)
    text = decoded(content)
    is_json = text.lstrip()[:1] in ("{", "[") and name.suffix.lower() not in (".csv", ".tsv")
    is_json |= bool(re.match(r'\s*(\[\s*)?\{\s*"', text))
    return read_json(text) if is_json or _kind(name) == "json" else read_csv(text)


def _of_frame(frame: pl.DataFrame) -> Source:
    """Return a frame without nested columns; a null may be a missing value."""
    if not any(dtype.is_nested() for dtype in frame.schema.values()):
        return Source(frame)
    rows = frame.to_dicts()
    return Source(frame_of({k: v for k, v in row.items() if v is not None} for row in rows))


def _kind(file: Path) -> str:
    """Return the suffix of a table, without that of its compression; "" if it is none."""
    found = re.search(
        r"\.(csv|tsv|parquet|json|jsonl|ndjson)(\.gz|\.bz2|\.xz)*$", file.name.lower()
    )
    if found is None:
        return ""
    if "json" in found[1]:
        return "json"
    return found[1]


def _folder(path: Path) -> Source:
    if (path / "study.json").exists():
        raise UserError(f"{path} is a study of lmzoo; use `lmzoo rank {shlex.quote(str(path))}`")
    for link in filter(Path.is_symlink, path.glob("**/*")):
        if not re.fullmatch(r"debug.*\.log", link.name):  # W&B links its logs, which are not read
            below(path, link.relative_to(path).as_posix())
    # Stores first: the artifacts of their runs may be tables and event files.
    if (path / "mlflow.db").exists():
        return read_database(path / "mlflow.db")
    if (source := _mlflow_runs(path)) is not None:
        return source
    files = sorted(file for file in path.glob("**/*") if file.is_file())
    hidden = re.compile(r"\.|latest-run$")  # the latter is a link to a run of W&B
    files = [f for f in files if not any(map(hidden.match, f.relative_to(path).parts))]
    if logs := [file for file in files if file.suffix == ".wandb"]:
        return _said(read_wandb_logs(logs, path), logs, files, path)
    # The order of PARTS decides: Lightning and Tune write event files as well.
    for name in PARTS:
        if own := [file for file in files if file.name == name]:
            return _said(_files(own, path, PARTS[name], whole=True), own, files, path)
    if boards := [file for file in files if "tfevents" in file.name]:
        found = read_boards(sorted({file.parent for file in boards}), path, SETTINGS)
        return _said(source_of(found), boards, files, path)
    tables = [file for file in files if _kind(file)]
    tables = [file for file in tables if file.name not in SETTINGS] or tables
    kinds = Counter(map(_kind, tables))
    if len(kinds) == 1:
        return _files(tables, path, "", whole=False)
    raise UserError(
        f"{path} has neither runs of MLflow, W&B, Tune, Lightning or Hugging Face, nor event files "
        f"of TensorBoard, nor tables of one kind ({dict(kinds) or 'none'}): give a folder of one"
    )


def _said(source: Source, read: Sequence[Path], files: Sequence[Path], root: Path) -> Source:
    """Say which files of results are not read, and keep the values of those that are small."""
    names = {file: re.sub(r".*tfevents.*", "event file", file.name) for file in files}
    left = {file: name for file, name in names.items() if re.fullmatch(RESULTS, name)}
    for file in read:
        left.pop(file, None)
    if left:
        said = ", ".join(f"{count} {name}" for name, count in Counter(left.values()).items())
        source.notes.append(f"{names[read[0]]} is read; not read: {said}")
    for file in (file for file in left if file.suffix == ".json"):
        with contextlib.suppress(ValueError, UserError):
            for row in read_json(file.read_text()).frame[:1].to_dicts():
                source.others.append((place_of(file.parent, root)[""][RUN], file.name, row))
    return source


RESULTS = "|".join(["event file", r".*_results\.json", *map(re.escape, PARTS)])


def _mlflow_runs(path: Path) -> Source | None:
    """Return the runs that MLflow wrote as files; None if there is none."""
    runs = {f.parent for f in path.glob("**/meta.yaml") if (f.parent / "metrics").is_dir()}
    if not runs:
        return None
    # And those whose meta.yaml is lost, but no logged models of MLflow 3.
    runs |= {f.parent for f in path.glob("**/metrics/") if (f.parent / "params").is_dir()}
    rows = []
    for run in sorted(run for run in runs if run.parent.name != "models"):
        try:
            rows.append(read_mlflow_run(run))
        except Exception as error:
            raise UserError(f"{run} has a damaged file: {error}; delete it") from error
    return source_of(row for _, row in sorted(rows, key=lambda own: own[0]))


def _files(files: Sequence[Path], root: Path, step: str, *, whole: bool) -> Source:
    """Return the rows of files of one kind; `whole`: each folder is a run."""
    kept = files
    splits = _splits(files)
    if whole:
        kept = _newest(files)
        splits = {}
    found = {file: _table_and_settings(file) for file in kept}
    notes = [note for source, _ in found.values() for note in source.notes]
    copies = len(files) - len(kept)
    if copies:
        notes.append(f"{copies} {files[0].name} of checkpoints hold a part of their run's history")
    names = {tuple(source.frame[RUN]) for source, _ in found.values() if RUN in source.paths}
    # The same names in each file are parts of its run, such as the splits of the data.
    is_run = len(names) == 1 and len(kept) > 1
    states = _tune_states(root)
    rows: list[RunParts] = []
    for file, (source, config) in found.items():
        split = splits.get(file, "")
        folder = file.with_suffix("")
        if whole or split:
            folder = file.parent
        # A file without rows is a run without a result, and counts as one.
        place = place_of(folder, root)
        own = _rows_of(source, is_run=is_run)
        place[""] |= _state_of(file, own[0], states, place[""][RUN])
        for row in own:
            ours = dict(place[""])
            if STATE in row:
                ours[STATE] = row.pop(STATE)
            if RUN in source.paths and not is_run:
                ours[RUN] += f"/{row.pop(RUN)}"
            if split:
                row = {k if re.fullmatch(STEPS, k) else f"{split}.{k}": v for k, v in row.items()}
            if step == "training_iteration" and row.get("done") in ("True", "False"):
                del row["done"]  # False in the last row of a function of Ray Tune
            rest = {k: v for k, v in config.items() if k not in row or not k.startswith("config.")}
            if split and len(own) == 1 and rows and rows[-1][""] == ours:
                rows[-1]["file"] |= row
            else:
                rows.append({"": ours, "file": row, "config": rest, "path": place["path"]})
    result = source_of([*rows, *_without_results(files, root)], notes=notes)
    if step in result.frame.columns:
        result.step = step
    return result


def _rows_of(source: Source, *, is_run: bool) -> list[Row]:
    """Return the rows of a file, at least one; named parts of a run are one."""
    rows = [{k: v for k, v in row.items() if v is not None} for row in source.frame.to_dicts()]
    if RUN in source.paths and is_run:
        return [{f"{row[RUN]}.{k}": v for row in rows for k, v in row.items() if k != RUN}]
    return rows or [{}]


def _state_of(file: Path, row: Row, states: Mapping[str, str], run: str) -> Row:
    """Return how a run ended, as Ray Tune or Sacred has written it; empty if neither has."""
    trials = [row.get("trial_id"), *(trial for trial in states if f"_{trial}_" in run)]
    known = [states[trial] for trial in trials if trial in states]
    if known:
        return {"status": known[0]}
    if file.with_name("error.txt").exists():
        return {STATE: "not finished (error.txt)"}
    status = read_settings(file.with_name("run.json")).get("config.status")
    if status:
        return {"status": status}
    return {}


def _without_results(files: Sequence[Path], root: Path) -> Iterator[RunParts]:
    """Yield the runs that ended before they wrote a result: they have settings alone."""
    known = {folder for file in files for folder in file.parents}
    for mark in RUN_MARKS:
        for file in sorted(root.glob(f"**/{mark}")):
            folder = file.parent
            if ".hydra" in mark:
                folder = folder.parent
            if folder not in known:
                yield place_of(folder, root) | {"config": read_settings(file)}


def _table_and_settings(file: Path) -> tuple[Source, Row]:
    content = file.read_bytes()
    settings: Row = {}
    try:
        for name in SETTINGS:
            if name != file.name:
                settings |= read_settings(file.parent / name)
        found = Source(frame_of([{}]))
        if content.strip():
            found = _content(content, file)
    except Exception as error:
        raise UserError(f"{file} and its settings: {error}") from error
    if "history" in file.name and "epoch" not in found.frame.columns:  # of Keras, in order
        found.frame = found.frame.with_row_index("epoch")
    return found, settings


def _newest(files: Sequence[Path]) -> list[Path]:
    """Return the history of each run: its own file, or that of its newest checkpoint."""
    newest: dict[Path, tuple[float, Path]] = {}
    for file in files:
        found = re.fullmatch(CHECKPOINT, file.parent.name)
        run = file.parent.parent if found else file.parent
        own = (int(found[1]) if found else math.inf, file)
        newest[run] = max(own, newest.get(run, own))
    return [file for _, file in newest.values()]


def _splits(files: Sequence[Path]) -> dict[Path, str]:
    """Return the split of each file in a folder that has files of several splits of one run."""
    found = {
        f: re.fullmatch(f"({SPLIT})([_-]?(results?|metrics?|scores?))?", f.stem) for f in files
    }
    folders = Counter(file.parent for file, own in found.items() if own)
    return {file: own[1] for file, own in found.items() if own and folders[file.parent] > 1}


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
