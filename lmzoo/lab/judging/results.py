"""Read results that other programs wrote into one frame: one row per run, or per run and step.

    .csv .tsv           one row per run; a chart export of W&B ("run - metric") becomes one too
    .jsonl .json        one object per run, or a list of them; nested names are joined by dots
    .parquet            one row per run
    .db .sqlite         a storage of Optuna (trials) or MLflow (runs), sqlite:///FILE, too
    mlruns/             MLflow's folders: run, params, tags and the last value of each metric
    a folder            TensorBoard's event files: run, hparams and the last value of each scalar

Cells of text files stay text; `numbers` reads a metric. An empty cell or null is a missing run; NaN
and infinity are what a diverged training prints. pandas writes a NaN as an empty cell.
"""

import contextlib
import io
import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError, near
from lmzoo.lab.judging.reports import LARGEST, number

Row = dict[str, Any]
FAILED = ("crashed", "failed", "killed", "running", "preempted", "pruned", "fail", "waiting")
"""States of runs that have no result: a run that crashed has the metric of its last step only."""
STATES = ("state", "status", "State", "Status")


def read_results(path: str | Path) -> pl.DataFrame:
    """Return the results of a file or a folder.

    Raises:
        UserError: It does not exist, cannot be read, or has no rows.
    """
    text = str(path)
    bare = re.sub("^sqlite:/+", "", text)  # a Path of sqlite:///FILE has a single slash
    source = Path(bare if bare == text or Path(bare).exists() else f"/{bare}")
    if not source.exists():
        raise UserError(f"no file or folder {str(source)!r}; give a CSV, JSON lines, Parquet, ...")
    read = _folder if source.is_dir() else _reader(source)
    try:
        frame = read(source)
    except UserError as error:
        raise UserError(f"{source}: {error}".replace(f"{source}: {source}", str(source))) from error
    except (OSError, ValueError, RecursionError, sqlite3.Error, pl.exceptions.PolarsError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"cannot read {source}: {reason}") from error
    if frame.is_empty():
        raise UserError(f"{source} has no rows of results")
    return frame


def as_frame(results: Any) -> pl.DataFrame:
    """Return a polars frame of a polars or pandas frame, columns, rows or a path.

    A NaN of pandas is a missing value.
    """
    if isinstance(results, pl.DataFrame):
        return results
    if isinstance(results, str | Path):
        return read_results(results)
    if isinstance(results, Mapping):
        return pl.DataFrame({str(name): list(own) for name, own in results.items()}, strict=False)
    if hasattr(results, "columns") and hasattr(results, "__getitem__"):
        columns = {str(name): results[name].tolist() for name in results.columns}
        missing = {
            name: [None if isinstance(v, float) and math.isnan(v) else v for v in own]
            for name, own in columns.items()
        }
        return pl.DataFrame(missing, strict=False)
    return _from_rows(results)


def parse_column(frame: pl.DataFrame, pattern: str, column: str = "run") -> pl.DataFrame:
    """Add the named groups of a regular expression over a column, such as the names of runs.

    Raises:
        UserError: There is no such column, no named group, or nothing matches.
    """
    if column not in frame.columns:
        column = next((c for c in ("Name", "run_name", "name") if c in frame.columns), column)
    require(frame, column)
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UserError(f"--parse {pattern!r} is no regular expression: {error}") from error
    if not compiled.groupindex:
        raise UserError(f"--parse {pattern!r} has no named group, such as (?P<seed>\\d+)")
    found = [compiled.search(str(name)) for name in frame[column]]
    if not any(found):
        raise UserError(f"--parse {pattern!r} matches no {column}; the first: {frame[column][0]!r}")
    groups = {name: [m and m[name] for m in found] for name in compiled.groupindex}
    return frame.with_columns(pl.Series(name, own, pl.String) for name, own in groups.items())


def require(frame: pl.DataFrame, *columns: str) -> None:
    """Check that columns exist.

    Raises:
        UserError: One does not; the message has similar names.
    """
    for name in columns:
        if name not in frame.columns:
            raise UserError(f"no column {name!r}{near(name, frame.columns)}")


def numbers(frame: pl.DataFrame, metric: str) -> list[float | None]:
    """Return a metric as numbers: None if it is missing or the run has not finished.

    Raises:
        UserError: A cell is text.
    """
    states = next((frame[c].to_list() for c in STATES if c in frame.columns), [None] * len(frame))
    result: list[float | None] = []
    for i, (value, state) in enumerate(zip(frame[metric].to_list(), states, strict=True)):
        text = value.strip() if isinstance(value, str) else value
        if text is None or text == "" or str(state).lower() in FAILED:
            result.append(None)
            continue
        try:
            result.append(number(text))
        except ValueError:
            raise UserError(
                f"row {i + 1}: {metric} is {text!r}, not a number up to {LARGEST:g}; leave the "
                "cell of a run without a result empty"
            ) from None
    return result


def last_rows(frame: pl.DataFrame, keys: list[str], step: str) -> pl.DataFrame:
    """Return the last row of each run by a column of steps."""
    order = pl.Series("_step", numbers(frame, step), pl.Float64)
    if order.is_null().any():
        raise UserError(f"a row has no {step}; leave out --step, or fill it")
    frame = frame.with_columns(order, _row=pl.int_range(len(frame)))
    last = frame.sort("_step", maintain_order=True).unique(keys, keep="last", maintain_order=True)
    return last.sort("_row").drop("_row", "_step")


def _reader(path: Path) -> Callable[[Path], pl.DataFrame]:
    with path.open("rb") as file:
        if file.read(16).startswith(b"SQLite format 3"):
            return _sqlite
    suffixes = {
        ".csv": _csv, ".tsv": _csv, ".txt": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines,
        ".json": _json, ".parquet": pl.read_parquet,
    }  # fmt: skip
    if path.suffix.lower() not in suffixes:
        raise UserError(
            f"{path} is of no known kind; known: {', '.join(suffixes)}, a storage of Optuna or "
            "MLflow, folders of MLflow and TensorBoard"
        )
    return suffixes[path.suffix.lower()]


def _csv(path: Path) -> pl.DataFrame:
    text = path.read_text(encoding="utf-8-sig")
    first = text.partition("\n")[0]
    separator = max(",\t;", key=first.count)
    frame = pl.read_csv(io.BytesIO(text.encode()), infer_schema=False, separator=separator)
    return _wandb_chart(frame.rename(str.strip))


def _wandb_chart(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the last value of each run of a chart that W&B exported; other frames as they are."""
    series = [c for c in frame.columns if f"{c}__MIN" in frame.columns and " - " in c]
    if not series:
        return frame
    rows: list[Row] = []
    for column in series:
        run, _, metric = column.rpartition(" - ")
        values = [v for v in frame[column] if v not in (None, "")]
        rows.append({"run": run, metric: values[-1] if values else None})
    return _from_rows(rows)


def _json_lines(path: Path) -> pl.DataFrame:
    rows = []
    for i, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if line.strip():
            rows.append(_parsed(line, f"{path}, line {i}"))
    return _from_rows(rows)


def _json(path: Path) -> pl.DataFrame:
    text = path.read_text(encoding="utf-8-sig")
    try:
        value = json.loads(text)
    except ValueError:
        return _json_lines(path)
    if isinstance(value, dict):
        lists = {k: v for k, v in value.items() if isinstance(v, list)}
        if rows := lists.get("rows") or lists.get("data"):
            value = rows
        elif lists:
            return pl.DataFrame(lists, strict=False)
        else:
            value = [value]
    return _from_rows(value)


def _parsed(line: str, where: str) -> Row:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{where} is no object: {line.strip()[:40]}")
    return value


def _flat(row: Mapping[str, Any], prefix: str = "") -> Row:
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = json.dumps(value) if isinstance(value, list) else value
    return flat


def _from_rows(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a frame of flat rows. A column of numbers and texts is text."""
    rows = list(rows)
    if not all(isinstance(row, Mapping) for row in rows):
        raise UserError("the results are no objects; give one for each run")
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = {}
    for name in names:
        own = [row.get(name) for row in flat]
        kinds = {type(v) for v in own if v is not None}
        if len(kinds) > 1:
            own = [float(v) if kinds == {int, float} and v is not None else v for v in own]
        is_mixed = len(kinds) > 1 and kinds != {int, float}
        columns[name] = [None if v is None else str(v) for v in own] if is_mixed else own
    return pl.DataFrame(columns)


def _sqlite(path: Path) -> pl.DataFrame:
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        if {"trials", "trial_params", "trial_values"} <= tables:
            return _optuna(db)
        if {"runs", "latest_metrics", "params"} <= tables:
            return _mlflow(db)
    raise UserError(f"{path} is no storage of Optuna or MLflow; its tables: {', '.join(tables)}")


def _optuna(db: sqlite3.Connection) -> pl.DataFrame:
    rows: dict[int, Row] = {}
    for trial, count, state, study in db.execute(
        "SELECT trial_id, number, state, study_name FROM trials JOIN studies USING (study_id) "
        "ORDER BY trial_id"
    ):
        rows[trial] = {"study": study, "number": count, "state": state, "value": None}
    kinds = {"INF_POS": math.inf, "INF_NEG": -math.inf}
    for trial, objective, value, kind in db.execute(
        "SELECT trial_id, objective, value, value_type FROM trial_values"
    ):
        rows[trial]["value" if objective == 0 else f"value_{objective}"] = kinds.get(kind, value)
    for trial, name, value, described in db.execute(
        "SELECT trial_id, param_name, param_value, distribution_json FROM trial_params"
    ):
        choices = json.loads(described).get("attributes", {}).get("choices")
        rows[trial][name] = choices[int(value)] if choices else value
    for trial, key, value in db.execute(
        "SELECT trial_id, key, value_json FROM trial_user_attributes"
    ):
        rows[trial].setdefault(key, json.loads(value))
    return _from_rows(rows.values())


def _mlflow(db: sqlite3.Connection) -> pl.DataFrame:
    rows: dict[str, Row] = {}
    for run, name, status in db.execute(
        "SELECT run_uuid, name, status FROM runs WHERE lifecycle_stage = 'active' "
        "ORDER BY start_time"
    ):
        rows[run] = {"run": name or run, "status": status}
    for table in ("params", "tags"):
        for run, key, value in db.execute(f"SELECT run_uuid, key, value FROM {table}"):
            if run in rows and not key.startswith("mlflow."):
                rows[run].setdefault(key, value)
    for run, key, value, is_nan in db.execute(
        "SELECT run_uuid, key, value, is_nan FROM latest_metrics"
    ):
        if run in rows:
            rows[run][key] = math.nan if is_nan else value
    return _from_rows(rows.values())


MLFLOW_STATUS = {"1": "running", "2": "scheduled", "3": "finished", "4": "failed", "5": "killed"}


def _folder(path: Path) -> pl.DataFrame:
    if (path / "study.json").exists():
        raise UserError(f"{path} is a study of lmzoo; use `lmzoo rank {path}`")
    if (path / "mlflow.db").exists():
        return _sqlite(path / "mlflow.db")
    runs = sorted(file.parent for file in path.glob("**/meta.yaml"))
    if runs := [run for run in runs if (run / "metrics").is_dir()]:
        rows = sorted(map(_mlflow_run, runs), key=lambda row: row.pop("started"))
        return _from_rows(rows)
    folders = sorted({file.parent for file in path.glob("**/*tfevents*")})
    if folders:
        return _from_rows(_board_run(folder, path) for folder in folders)
    raise UserError(f"{path} has neither runs of MLflow nor event files of TensorBoard")


def _mlflow_run(folder: Path) -> Row:
    lines = (folder / "meta.yaml").read_text().splitlines()
    meta = dict(line.split(": ", 1) for line in lines if ": " in line)
    name = meta.get("run_name", folder.name).strip("'\"")
    row: Row = {"run": name, "status": MLFLOW_STATUS.get(meta.get("status", ""), "")}
    started = meta.get("start_time", "")
    row["started"] = int(started) if started.isdecimal() else 0
    for kind in ("params", "tags"):
        for file in sorted((folder / kind).glob("**/*")):
            key = str(file.relative_to(folder / kind))
            if file.is_file() and not key.startswith("mlflow."):
                row.setdefault(key, file.read_text().strip())
    for file in sorted((folder / "metrics").glob("**/*")):
        if file.is_file():  # lines of time, value, step
            lines = [line.split() for line in file.read_text().splitlines() if line.strip()]
            if not lines:
                continue
            last = max(lines, key=lambda part: (int(part[2]) if len(part) > 2 else 0, int(part[0])))
            row[str(file.relative_to(folder / "metrics"))] = float(last[1])
    return row


def _board_run(folder: Path, root: Path) -> Row:
    try:
        from tensorboard.backend.event_processing import event_accumulator
        from tensorboard.plugins.hparams import plugin_data_pb2
    except ImportError:
        raise UserError("event files need tensorboard: pip install tensorboard") from None
    events = event_accumulator.EventAccumulator(str(folder), {"scalars": 0, "tensors": 0})
    events.Reload()
    name = str(folder.relative_to(root))
    row: Row = {"run": name}
    row |= {f"part{i}": part for i, part in enumerate(Path(name).parts, 1)}
    for tag in events.Tags()["scalars"]:
        row[tag] = events.Scalars(tag)[-1].value
    for tag in events.Tags()["tensors"]:
        with contextlib.suppress(IndexError, ValueError, TypeError):
            row.setdefault(tag, float(events.Tensors(tag)[-1].tensor_proto.float_val[0]))
    with contextlib.suppress(KeyError):
        for content in events.PluginTagToContent("hparams").values():
            data = plugin_data_pb2.HParamsPluginData.FromString(content)  # type: ignore[attr-defined]
            for key, value in data.session_start_info.hparams.items():
                row[key] = getattr(value, value.WhichOneof("kind") or "string_value")
    return row
