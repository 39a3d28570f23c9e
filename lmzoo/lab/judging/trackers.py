"""Read stores of trackers: Optuna, MLflow and TensorBoard; one row per run, with its state.

Which runs were deleted, how they ended and the direction of a study stay with the rows.
"""

import contextlib
import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.texts import RUN, TORN, Row, Source, flat_row, frame_of

TRIALS = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")
DIRECTIONS = {"MINIMIZE": False, "MAXIMIZE": True, 1: False, 2: True}


def _optuna(
    studies: Mapping[int, tuple[str, Sequence[Any]]], trials: Mapping[int, tuple[int, Row]]
) -> Source:
    """Return the trials of studies: number -> name, directions; trial -> study, row."""
    higher: dict[str, bool | None] = {}
    for study in {study for study, _ in trials.values()}:
        for i, direction in enumerate(studies[study][1]):
            name, own = f"value_{i}" if i else "value", DIRECTIONS.get(direction)
            higher[name] = own if higher.get(name, own) == own else None
    rows = [{"study": studies[study][0], **row} for study, row in trials.values()]
    return Source(frame_of(rows), higher=higher)


def _values(values: Iterable[Any] | None) -> Row:
    return {f"value_{i}" if i else "value": v for i, v in enumerate(values or [None])}


def _choice(value: Any, distribution: str) -> Any:
    choices = json.loads(distribution).get("attributes", {}).get("choices")
    return choices[int(value)] if choices else value


def read_journal(operations: Sequence[Row]) -> Source:
    """Return the trials of a journal of Optuna, which numbers studies and trials as they come."""
    studies: dict[int, tuple[str, Sequence[Any]]] = {}
    trials: dict[int, tuple[int, Row]] = {}
    made = 0
    for op in operations:
        code, trial = op["op_code"], op.get("trial_id")
        row: Row = trials[trial][1] if trial in trials else {}
        if code == 0:
            studies[made], made = (op["study_name"], op["directions"]), made + 1
        elif code == 1:
            study = op["study_id"]
            studies.pop(study)
            for key in [key for key, (own, _) in trials.items() if own == study]:
                trials[key] = study, {**trials[key][1], "lifecycle_stage": "deleted"}
        elif code == 4:
            study = op["study_id"]
            number = sum(own == study for own, _ in trials.values())
            row = {"number": number, "state": TRIALS[op.get("state", 0)]}
            row |= _values(op.get("values") or [op.get("value")])
            for name, value in op.get("params", {}).items():
                row[name] = _choice(value, op["distributions"][name])
            trials[len(trials)] = study, row | op.get("user_attrs", {})
        elif code == 5:
            row[op["param_name"]] = _choice(op["param_value_internal"], op["distribution"])
        elif code == 6:
            row |= {"state": TRIALS[op["state"]], **_values(op.get("values"))}
        elif code == 8:
            for name, value in op["user_attr"].items():
                row.setdefault(name, value)
    known = {study for study, _ in trials.values()}
    return _optuna({study: studies.get(study, ("deleted", ())) for study in known}, trials)


def read_database(file: Path) -> Source:
    """Return the trials of Optuna or the runs of MLflow in a database."""
    with contextlib.closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}

        def rows(table: str, order: str = "1") -> list[Row]:
            if table not in tables:
                return []
            return [dict(row) for row in db.execute(f"SELECT * FROM {table} ORDER BY {order}")]

        if {"trials", "trial_params", "trial_values"} <= tables:
            return _optuna_tables(rows)
        if {"runs", "latest_metrics", "params"} <= tables:
            return Source(_mlflow_tables(rows))
    raise UserError(f"no storage of Optuna or MLflow; its tables: {', '.join(sorted(tables))}")


def _optuna_tables(rows: Callable[..., list[Row]]) -> Source:
    directions = rows("study_directions", "objective")
    studies = {
        row["study_id"]: (
            row["study_name"],
            [own["direction"] for own in directions if own["study_id"] == row["study_id"]]
            or [row.get("direction")],
        )
        for row in rows("studies")
    }
    trials = {
        row["trial_id"]: (
            row["study_id"], {"number": row["number"], "state": row["state"], "value": None}
        )
        for row in rows("trials")
    }  # fmt: skip
    infinite = {"INF_POS": math.inf, "INF_NEG": -math.inf}
    for row in rows("trial_values"):
        objective = row.get("objective", 0)
        value = infinite.get(row.get("value_type", ""), row["value"])
        trials[row["trial_id"]][1]["value" if not objective else f"value_{objective}"] = value
    for row in rows("trial_params"):
        value = _choice(row["param_value"], row["distribution_json"])
        trials[row["trial_id"]][1][row["param_name"]] = value
    for row in rows("trial_user_attributes"):
        trials[row["trial_id"]][1].setdefault(row["key"], json.loads(row["value_json"]))
    return _optuna(studies, trials)


def _mlflow_tables(rows: Callable[..., list[Row]]) -> pl.DataFrame:
    removed = {
        row["experiment_id"] for row in rows("experiments") if row["lifecycle_stage"] == "deleted"
    }
    runs: dict[str, Row] = {}
    for row in rows("runs", "start_time"):
        stage = "deleted" if row.get("experiment_id") in removed else row["lifecycle_stage"]
        runs[row["run_uuid"]] = {RUN: row["name"] or row["run_uuid"], "status": row["status"]}
        if stage != "active":
            runs[row["run_uuid"]]["lifecycle_stage"] = stage
    for table in ("params", "tags", "latest_metrics"):
        for row in rows(table):
            if row["run_uuid"] in runs and not row["key"].startswith("mlflow."):
                value = math.nan if row.get("is_nan") else row["value"]
                own = runs[row["run_uuid"]]
                own[row["key"]] = value if table[0] == "l" else own.get(row["key"], value)
    return frame_of(runs.values())


MLFLOW_STATUS = {"1": "running", "2": "scheduled", "3": "finished", "4": "failed", "5": "killed"}


def read_settings(file: Path) -> Row:
    """Return the settings of a JSON file, or of the plain lines of a YAML file."""
    if not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        return {f"config.{k}": v for k, v in flat_row(json.loads(text)).items()}
    lines = re.findall(r"^(\w[\w./-]*): *(\S.*)$", text, re.MULTILINE)
    nested = re.findall(r"^(\w[\w./-]*):\n(?:  desc:.*\n)?  value: *(\S.*)$", text, re.MULTILINE)
    return {name: value.strip("'\"") for name, value in [*lines, *nested]}


def read_mlflow_run(folder: Path) -> Row:
    """Return a run of MLflow's folders, with the last value of each metric."""
    meta, above = read_settings(folder / "meta.yaml"), folder.parent / "meta.yaml"
    row: Row = {RUN: meta.get("run_name", folder.name)}
    row["status"] = MLFLOW_STATUS.get(meta.get("status", ""), meta.get("status"))
    stages = [own.get("lifecycle_stage") for own in (meta, read_settings(above))]
    if "deleted" in stages or ".trash" in folder.parts:
        row["lifecycle_stage"] = "deleted"
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


def read_boards(folders: Sequence[Path], root: Path) -> list[Row]:
    """Return a row per folder of event files; a sub-run of `add_hparams` is part of its run."""
    rows: dict[Path, Row] = {}
    for folder in folders:
        row = _board_run(folder, root)
        above = folder.parent
        if above in rows and re.fullmatch(r"\d+\.\d+", folder.name):
            rows[above] = {**row, **rows[above]}
        else:
            rows[folder] = row
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
    name = str(folder.relative_to(root))
    row: Row = {RUN: name}
    row |= {f"part{i}": part for i, part in enumerate(Path(name).parts, 1)}
    for tag in events.Tags()["scalars"]:
        row[tag] = events.Scalars(tag)[-1].value
    for tag in events.Tags()["tensors"]:
        value = make_ndarray(events.Tensors(tag)[-1].tensor_proto)
        if value.size == 1 and value.dtype.kind in "fiub":
            row.setdefault(tag, float(value.item()))
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
