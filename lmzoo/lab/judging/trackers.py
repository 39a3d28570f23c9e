"""Read stores of trackers: Optuna, MLflow, W&B and TensorBoard; one row per run, with its state.

Which runs were deleted, how they ended and the direction of a study stay with the rows.
"""

import contextlib
import json
import re
import sqlite3
import struct
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lmzoo.base.errors import UserError
from lmzoo.base.printed import json_value
from lmzoo.lab.judging.texts import RUN, TORN, Row, Source, flat_row, frame_of, path_columns

LAST_STEP = " (last step)"
"""End of the column that says at which step a metric has its last value."""
MLFLOW = (
    "SELECT run_uuid, 'run', COALESCE(NULLIF(name, ''), run_uuid) FROM runs ORDER BY start_time",
    "SELECT run_uuid, 'status', status FROM runs",
    """SELECT run_uuid, 'lifecycle_stage', 'deleted'
       FROM runs JOIN experiments USING (experiment_id)
       WHERE 'deleted' IN (runs.lifecycle_stage, experiments.lifecycle_stage)""",
    """SELECT run_uuid, key, CASE WHEN is_nan THEN 'nan' WHEN abs(value) > 1.797e308 THEN 'inf'
       ELSE value END FROM latest_metrics""",
    f"SELECT run_uuid, key || '{LAST_STEP}', step FROM latest_metrics",
    "SELECT run_uuid, key, value FROM params WHERE key NOT LIKE 'mlflow.%'",
    "SELECT run_uuid, key, value FROM tags WHERE key NOT LIKE 'mlflow.%'",
)
"""Run, column and value of a database of MLflow; the first value of a column counts."""
MLFLOW_STATUS = {"1": "running", "2": "scheduled", "3": "finished", "4": "failed", "5": "killed"}
WANDB_BLOCK = 2**15
"""Bytes of a block of W&B's log, whose records are in parts of a block."""


def read_database(file: Path) -> Source:
    """Return the trials of Optuna or the runs of MLflow in a database."""
    address = f"{file.resolve().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        if {"runs", "latest_metrics", "params"} <= tables:
            runs: dict[str, Row] = {}
            for query in MLFLOW:
                for run, column, value in db.execute(query):
                    runs.setdefault(run, {}).setdefault(column, value)
            return Source(frame_of(runs.values()))
        if {"trials", "trial_params", "trial_values"} <= tables:
            with tempfile.TemporaryDirectory() as folder:  # optuna may write
                with contextlib.closing(sqlite3.connect(f"{folder}/copy.db")) as copy:
                    db.backup(copy)
                return _optuna(lambda o: o.storages.RDBStorage(f"sqlite:///{folder}/copy.db"))
    raise UserError(f"no storage of Optuna or MLflow; its tables: {', '.join(sorted(tables))}")


def read_journal(content: bytes) -> Source:
    """Return the trials of a journal of Optuna."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return _optuna(
            lambda o: o.storages.JournalStorage(o.storages.journal.JournalFileBackend(file.name))
        )


def _optuna(opened: Any) -> Source:
    try:
        import optuna
    except ImportError:
        raise UserError("a storage of Optuna needs optuna: pip install optuna") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            storage = opened(optuna)
            names = optuna.get_all_study_names(storage)
            studies = [optuna.load_study(study_name=name, storage=storage) for name in names]
            return _trials([(study, study.get_trials(deepcopy=False)) for study in studies])
        except (RuntimeError, optuna.exceptions.OptunaError) as error:
            raise UserError(f"optuna: {' '.join(str(error).split())}") from error


def _trials(studies: Sequence[tuple[Any, Sequence[Any]]]) -> Source:
    """Return the trials of studies, each value by its number and by the name of its metric."""
    higher: dict[str, bool | None] = {}
    rows: list[Row] = []
    for study, trials in studies:
        named = study.metric_names or ()
        columns = [
            (f"value_{i}" if i else "value", *named[i : i + 1])
            for i in range(len(study.directions))
        ]
        for aliases, direction in zip(columns, study.directions if trials else (), strict=False):
            own = {"MINIMIZE": False, "MAXIMIZE": True}.get(direction.name)
            for name in aliases:
                higher[name] = own if higher.get(name, own) == own else None
        for trial in trials:
            row: Row = {"study": study.study_name, "number": trial.number}
            row["state"] = trial.state.name
            for i, aliases in enumerate(columns):
                row |= dict.fromkeys(aliases, trial.values[i] if trial.values else None)
            rows.append({**trial.user_attrs, **row, **trial.params})
    return Source(frame_of(rows), higher=higher)


def read_settings(file: Path) -> Row:
    """Return the settings of a JSON file, or of the mappings of a YAML file."""
    if not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        found = json_value(text)
        return flat_row({"config": found}) if isinstance(found, dict) else {}
    root: Row = {}
    levels: list[tuple[int, Row]] = [(-1, root)]
    for line in text.split("\n"):
        if not (found := re.fullmatch(r"""( *)(['"]?)([\w./-]+)\2:(?: +(.*?))?\s*""", line)):
            continue
        indent, name, value = len(found[1]), found[3], re.sub(r"(^| )#.*$", "", found[4] or "")
        while levels[-1][0] >= indent:
            levels.pop()
        own = levels[-1][1]
        if value.startswith("{"):
            try:
                own[name] = json_value(value)
            except ValueError:
                raise UserError(f"{name} is {value[:60]!r}; write a line per setting") from None
        elif value and value[0] not in "!&|>":
            own[name] = None if value in ("null", "~") else value.strip().strip("'\"")
        else:
            own[name] = {}
            levels.append((indent, own[name]))
    return flat_row(root)


def read_mlflow_run(folder: Path) -> Row:
    """Return a run of MLflow's folders, with the last value of each metric."""
    meta, above = read_settings(folder / "meta.yaml"), read_settings(folder.parent / "meta.yaml")
    row: Row = {RUN: meta.get("run_name", folder.name)}
    row["status"] = MLFLOW_STATUS.get(meta.get("status", ""), meta.get("status"))
    stages = meta.get("lifecycle_stage"), above.get("lifecycle_stage")
    if ".trash" in folder.parts or "deleted" in stages:
        row["lifecycle_stage"] = "deleted"
    started = meta.get("start_time", "")
    row["started"] = int(started) if started.isdecimal() else 0
    for kind in ("metrics", "params", "tags"):
        for file in sorted((folder / kind).glob("**/*")):
            key, text = str(file.relative_to(folder / kind)), ""
            if file.is_file() and not key.startswith("mlflow."):
                text = file.read_text().strip()
            if text and kind == "metrics":  # lines of time, value, step
                lines = [line.split() for line in text.splitlines() if line.strip()]
                step, _, text = max((int((*own, 0)[2]), int(own[0]), own[1]) for own in lines)
                row[f"{key}{LAST_STEP}"] = step
            if text:
                row.setdefault(key, text)
    return row


def read_wandb_log(file: Path) -> Row:
    """Return the run in a log that W&B writes on this machine, also while it is written."""
    try:
        from google.protobuf.message import DecodeError
        from wandb.proto import wandb_internal_pb2
    except ImportError:
        raise UserError("logs of W&B need wandb: pip install wandb") from None
    row: Row = {"state": "running"}
    for content in _wandb_records(file.read_bytes()):
        try:
            record = wandb_internal_pb2.Record.FromString(content)  # type: ignore[attr-defined]
        except DecodeError:
            return row | TORN
        row[RUN] = record.run.display_name or row.get(RUN) or file.stem
        for before, items in (
            ("config.", record.run.config.update),
            ("config.", record.config.update),
            ("", record.history.item),
            ("", record.summary.update),
        ):
            for item in items:
                name = ".".join(item.nested_key) or item.key
                row |= flat_row({f"{before}{name}": json.loads(item.value_json)})
        if record.HasField("exit"):
            row["state"] = "failed" if record.exit.exit_code else "finished"
    return row


def _wandb_records(content: bytes) -> Iterator[bytes]:
    """Yield the whole records of a log: blocks of parts, each with check, size and kind."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        left = WANDB_BLOCK - place % WANDB_BLOCK
        if left < 7:  # no mutation: a part of no bytes may fill the last seven
            place += left
            continue
        size, kind = struct.unpack_from("<HB", content, place + 4)
        parts += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4) and place <= len(content):  # whole, or its last part
            yield parts
            parts = b""


def read_boards(folders: Sequence[Path], root: Path) -> list[Row]:
    """Return a row per folder of event files; a sub-run of `add_hparams` is part of its run."""
    rows: dict[Path, Row] = {}
    for folder in folders:
        above = folder.parent
        run = above if above in rows and re.fullmatch(r"\d+\.\d+", folder.name) else folder
        rows[run] = _board_run(folder, root) | rows.get(run, {})
    return list(rows.values())


def _board_run(folder: Path, root: Path) -> Row:
    try:
        from tensorboard.backend.event_processing import event_accumulator
        from tensorboard.plugins.hparams import plugin_data_pb2
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        raise UserError("event files need tensorboard: pip install tensorboard") from None
    events = event_accumulator.EventAccumulator(str(folder), {"scalars": 0, "tensors": 0})
    events.Reload()
    row = path_columns(folder, root)
    for tag in events.Tags()["scalars"]:
        last = events.Scalars(tag)[-1]
        row |= {tag: last.value, f"{tag}{LAST_STEP}": last.step}
    for tag in events.Tags()["tensors"]:
        last = events.Tensors(tag)[-1]
        value = make_ndarray(last.tensor_proto)
        if tag not in row and value.size == 1 and value.dtype.kind in "fiub":
            row |= {tag: float(value.item()), f"{tag}{LAST_STEP}": last.step}
    with contextlib.suppress(KeyError):
        for content in events.PluginTagToContent("hparams").values():
            data = plugin_data_pb2.HParamsPluginData.FromString(content)  # type: ignore[attr-defined]
            for key, value in data.session_start_info.hparams.items():
                row[key] = getattr(value, value.WhichOneof("kind") or "string_value")
    torn = any(_is_torn(file) for file in folder.glob("*tfevents*"))
    return row | (TORN if torn else {})


def _is_torn(file: Path) -> bool:
    """Return whether a file of records, each with its length before it, ends inside of one."""
    content, place = file.read_bytes(), 0
    while place < len(content):
        place += 16 + int.from_bytes(content[place : place + 8], "little")
    return place != len(content)
