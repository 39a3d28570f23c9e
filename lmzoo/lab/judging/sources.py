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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from polars import DataFrame, LazyFrame

from lmzoo.base.errors import UserError
from lmzoo.base.foreign import below, unpacked
from lmzoo.base.plain import Fields
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
    known_cells,
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

OPENERS = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
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
    # `Path` makes one slash of two.
    if re.match("(https?|s3|gs):/", text):
        raise UserError(f"{text} is an address; write: curl ADDRESS | lmzoo judge -")
    if text != "-" and not file.exists():
        raise UserError(f"no file or folder {str(file)!r}; give a CSV, JSON lines, Parquet, ...")
    try:
        source = None
        if question is not None and text != "-":
            source = large_table(file, question)
        if source is None:
            source = _read(file)
    except UserError as error:
        text = f"{file}: {error}".replace(f"{file}: {file}", str(file))
        raise UserError(" ".join(text.split())) from error
    except ImportError as error:
        raise UserError(f"{file} needs {error.name}: pip install {error.name}") from None
    except Exception as error:  # readers of damaged files raise any
        reason, _, _ = str(error).strip().partition("\n")
        if not reason:
            reason = type(error).__name__
        raise UserError(f"cannot read {file}: {reason}") from error
    if source.frame.is_empty():
        raise UserError(f"{file} has no rows of results")
    return source


def _read(file: Path) -> Source:
    if str(file) == "-":
        return _content(sys.stdin.buffer.read(), file)
    if file.is_dir():
        return _folder(file)
    return _content(file.read_bytes(), file)


def as_source(results: Any, question: Any = None) -> Source:
    """Return the source of a polars or pandas frame, columns, rows or a path."""
    if isinstance(results, LazyFrame):
        results = results.collect()
    if hasattr(results, "experiment_path"):  # a ResultGrid of Ray Tune, which has no states
        results = results.experiment_path
    if isinstance(results, DataFrame):
        return _of_frame(results)
    if isinstance(results, str | Path):
        return read_results(results, question)
    is_series = hasattr(results, "dtype") and getattr(results, "ndim", 1) == 1
    if is_series or not hasattr(results, "__iter__"):
        raise UserError(f"results are {results!r:.60}; give a frame, columns, rows or a path")
    if isinstance(results, Mapping):
        return _of_columns(results)
    if hasattr(results, "isna"):
        return _of_pandas(results)
    return Source(frame_of(results))


def _of_columns(columns: Fields) -> Source:
    if all(isinstance(own, Mapping) for own in columns.values()):  # of LightGBM and XGBoost
        return Source(frame_of(objects_of(columns)))
    lists = {}
    for name, own in columns.items():
        if not hasattr(own, "__iter__"):
            raise UserError(f"column {name!r} is {own!r:.60}; give a list of values")
        lists[str(name)] = list(own)
    return _of_frame(DataFrame(lists, strict=False))


def _of_pandas(frame: Any) -> Source:
    # A named index is a column, such as the variant; a plain one numbers the rows.
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    frame = frame.rename(columns=str)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise UserError(f"two columns of the frame are named {twice[0]!r}; rename one")
    # pandas has one NaN for a missing value and for a diverged run.
    nans = frame.isna()
    known = frame.astype(object).where(~nans, None)
    source = Source(DataFrame(known.to_dict("list"), strict=False))
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
                file_of_bytes = opened(io.BytesIO(content))
                content = unpacked(file_of_bytes, len(content))
                name = name.with_suffix("")
    if content.startswith(b"SQLite format 3"):
        # SQLite reads a path, not bytes.
        if name != file or str(file) == "-":
            raise UserError("a database is read from a file of its own; unpack it first")
        return read_database(file)
    for mark, read in FRAMES.items():
        if content.startswith(mark):
            # A damaged file may make polars panic.
            with polars_errors():
                frame = read(content)
            return _of_frame(frame)
    if content.startswith(b"PK\x03\x04"):
        raise UserError("a workbook or an archive is not read; save the table as CSV")
    # Each line of a journal of Optuna begins so.
    if content.startswith(b'{"op_code"'):
        return read_journal(content)
    text = decoded(content)
    begins = r"\s*[{\[]"
    if name.suffix.lower() in (".csv", ".tsv"):
        # A cell of a CSV may begin with a brace, but not with an object.
        begins = r'\s*(\[\s*)?\{\s*"'
    if _kind(name) == "json" or re.match(begins, text):
        return read_json(text)
    return read_csv(text)


def _of_frame(frame: DataFrame) -> Source:
    """Return a frame without nested columns; a null may be a missing value."""
    are_nested = [dtype.is_nested() for dtype in frame.dtypes]
    if any(are_nested):
        frame = frame_of(known_cells(frame))
    return Source(frame)


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
    files = _visible(path)
    # Stores first: the artifacts of their runs may be tables and event files.
    if (path / "mlflow.db").exists():
        return read_database(path / "mlflow.db")
    source = _mlflow_runs(path)
    if source is not None:
        return source
    named = defaultdict(list)
    for file in files:
        named[_shown_name(file)].append(file)
    logs = [file for file in files if file.suffix == ".wandb"]
    if logs:
        return _said(read_wandb_logs(logs, path), logs, files, path)
    # The order of PARTS decides: Lightning and Tune write event files as well.
    for name, step in PARTS.items():
        own = named[name]
        if own:
            source = _files(own, path, step, whole=True)
            return _said(source, own, files, path)
    boards = named[EVENTS]
    if boards:
        folders = sorted({file.parent for file in boards})
        found = read_boards(folders, path, SETTINGS)
        return _said(source_of(found), boards, files, path)
    tables = list(filter(_kind, files))
    # A file with the name of settings is a table if there is no other.
    results = [file for file in tables if file.name not in SETTINGS]
    if results:
        tables = results
    found = Counter(map(_kind, tables))
    if len(found) == 1:
        return _files(tables, path, "", whole=False)
    raise UserError(
        f"{path} has neither runs of MLflow, W&B, Tune, Lightning or Hugging Face, nor event files "
        f"of TensorBoard, nor tables of one kind ({dict(found) or 'none'}): give a folder of one"
    )


def _visible(path: Path) -> list[Path]:
    """Return the files of a folder that no part of their path hides; refuse links that lead out."""
    files = []
    for file in sorted(path.glob("**/*")):
        place = file.relative_to(path).as_posix()
        # W&B links its logs, which are not read.
        if file.is_symlink() and not re.fullmatch(r"debug.*\.log", file.name):
            below(path, place)
        if file.is_file() and not re.search(HIDDEN, place):
            files.append(file)
    return files


def _shown_name(file: Path) -> str:
    if "tfevents" in file.name:
        return EVENTS
    return file.name


HIDDEN = r"(^|/)(\.|latest-run(/|$))"
"""Part of a path that is not read: hidden, or a link to a run of W&B."""
EVENTS = "event file"


def _said(source: Source, read: Sequence[Path], files: Sequence[Path], root: Path) -> Source:
    """Say which files of results are not read, and keep the values of those that are small."""
    left = Counter()
    known = set(read)
    for file in files:
        name = _shown_name(file)
        if file in known or not re.fullmatch(RESULTS, name):
            continue
        left[name] += 1
        if file.suffix != ".json":
            continue
        with contextlib.suppress(ValueError, UserError):
            frame = read_json(file.read_text()).frame
            for row in frame.head(1).to_dicts():
                run = place_of(file.parent, root)[""][RUN]
                source.others.append((run, file.name, row))
    if left:
        said = ", ".join(f"{count} {name}" for name, count in left.items())
        source.notes.append(f"{_shown_name(read[0])} is read; not read: {said}")
    return source


RESULTS = "|".join(map(re.escape, PARTS)) + r"|event file|.*_results\.json"


def _mlflow_runs(path: Path) -> Source | None:
    """Return the runs that MLflow wrote as files, as they began; None if there is none."""
    runs = _with_folder(path.glob("**/meta.yaml"), "metrics")
    if not runs:
        return None
    # And those whose meta.yaml is lost, but no logged models of MLflow 3.
    runs |= _with_folder(path.glob("**/metrics/"), "params")
    rows = []
    for run in sorted(runs):
        if run.parent.name == "models":
            continue
        try:
            rows.append(read_mlflow_run(run))
        except Exception as error:
            raise UserError(f"{run} has a damaged file: {error}; delete it") from error
    rows.sort(key=lambda own: own[0])
    return source_of(row for _, row in rows)


def _with_folder(files: Iterable[Path], name: str) -> set[Path]:
    """Return the folders of files that have a folder of this name, too."""
    return {file.parent for file in files if (file.parent / name).is_dir()}


def _files(files: Sequence[Path], root: Path, step: str, *, whole: bool) -> Source:
    """Return the rows of files of one kind; `whole`: each folder is a run."""
    kept = files
    splits = _splits(files)
    if whole:
        # A checkpoint of Hugging Face holds a part of the history of its run.
        kept = _newest(files)
        splits = {}
    found = {file: _table_and_settings(file) for file in kept}
    notes = []
    names = set()
    for source, _ in found.values():
        notes += source.notes
        if RUN in source.paths:
            names.add(tuple(source.frame[RUN]))
    copies = len(files) - len(kept)
    if copies:
        notes.append(f"{copies} {files[0].name} of checkpoints hold a part of their run's history")
    # The same names in each file are parts of its run, such as the splits of the data.
    is_run = len(names) == 1 and len(kept) > 1
    states = _tune_states(root)
    rows = []
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
                row = _of_split(row, split)
            if step == "training_iteration" and row.get("done") in ("True", "False"):
                del row["done"]  # False in the last row of a function of Ray Tune
            is_part = split and len(own) == 1
            if is_part and rows and rows[-1][""] == ours:
                rows[-1]["file"] |= row
                continue
            rows.append(
                {
                    "": ours,
                    "file": row,
                    "config": _without_repeated(config, row),
                    "path": place["path"],
                }
            )
    rows.extend(_without_results(files, root))
    result = source_of(rows, notes=notes)
    if step in result.frame.columns:
        result.step = step
    return result


def _rows_of(source: Source, *, is_run: bool) -> list[Row]:
    """Return the rows of a file, at least one; named parts of a run are one."""
    rows = known_cells(source.frame)
    if not rows:
        return [{}]
    if RUN not in source.paths or not is_run:
        return rows
    run = {}
    for row in rows:
        name = row.pop(RUN)
        for key, value in row.items():
            run[f"{name}.{key}"] = value
    return [run]


def _without_repeated(config: Row, row: Row) -> Row:
    """Return the settings of a run that its row does not have."""
    # Ray Tune writes the config of a trial into each of its rows.
    return {
        name: value
        for name, value in config.items()
        if name not in row or not name.startswith("config.")
    }


def _of_split(row: Row, split: str) -> Row:
    """Return a row with its split in the names of what was measured."""
    named = {}
    for name, value in row.items():
        if not re.fullmatch(STEPS.pattern, name):
            name = f"{split}.{name}"
        named[name] = value
    return named


def _state_of(file: Path, row: Row, states: Mapping[str, str], run: str) -> Row:
    """Return how a run ended, as Ray Tune or Sacred has written it; empty if neither has."""
    trial = row.get("trial_id", "")
    for name in states:
        # The name of its folder has the id of a trial whose rows lack it.
        if trial not in states and f"_{name}_" in run:
            trial = name
    if trial in states:
        return {"status": states[trial]}
    # Without the states of its experiment, the error of a trial tells.
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
                run = place_of(folder, root)
                run["config"] = read_settings(file)
                yield run


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
    newest = {}
    for file in files:
        run = file.parent
        step = math.inf
        checkpoint = CHECKPOINT.fullmatch(run.name)
        if checkpoint:
            run = run.parent
            step = int(checkpoint[1])
        own = (step, file)
        newest[run] = max(own, newest.get(run, own))
    return [file for _, file in newest.values()]


def _splits(files: Sequence[Path]) -> dict[Path, str]:
    """Return the split of each file in a folder that has files of several splits of one run."""
    found = {}
    for file in files:
        named = re.fullmatch(f"({SPLIT})([_-]?(results?|metrics?|scores?))?", file.stem)
        if named:
            found[file] = named[1]
    folders = Counter(file.parent for file in found)
    return {file: split for file, split in found.items() if folders[file.parent] > 1}


def _tune_states(root: Path) -> dict[str, str]:
    """Return the state of each trial of Ray Tune; the newest file of its experiment counts."""
    states = {}
    for file in sorted(root.glob("**/experiment_state-*.json")):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            for trial, *_ in content.get("trial_data", []):
                # Ray writes each trial as a text of JSON inside the JSON.
                if isinstance(trial, str):
                    trial = json.loads(trial)
                states[trial["trial_id"]] = trial["status"]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{file} has no states of trials: it is damaged ({error})") from error
    return states
