"""Read stores of trackers: Optuna, MLflow, W&B and TensorBoard; one row per run, with its state.

Which runs were deleted, how they ended and the direction of a study stay with the rows.
"""

import contextlib
import itertools
import json
import re
import sqlite3
import struct
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lmzoo.base.errors import UserError
from lmzoo.base.printed import json_value
from lmzoo.lab.judging.directions import add_direction
from lmzoo.lab.judging.texts import (
    KNOWN_NAMES,
    NULL,
    RUN,
    TORN,
    Row,
    RunParts,
    Source,
    flat_row,
    number,
    place_of,
    read_yaml,
    source_of,
)

LAST_STEP = " (last step)"
"""End of the column that says at which step a metric has its last value."""
RUN_ID = "run_id"
MLFLOW = KNOWN_NAMES["mlflow"]
"""Queries of a database: run, part, column and value; and the words of its states."""
DIRECTIONS = {"MINIMIZE": False, "MAXIMIZE": True}
"""Direction of Optuna -> whether higher is better."""
WANDB_BLOCK = 2**15
"""Bytes of a block of W&B's log, whose records are in parts of a block."""


def read_database(file: Path) -> Source:
    """Return the trials of Optuna or the runs of MLflow in a database."""
    # Read-only: a database of somebody else stays as it is.
    address = f"{file.resolve().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as db:
        try:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        except sqlite3.OperationalError as error:  # a journal of a writer that was killed
            raise UserError(f"{error}: open it once with the program that wrote it") from None
        if {"runs", "latest_metrics", "params"} <= tables:
            runs: dict[str, RunParts] = {}
            for query in MLFLOW["queries"]:
                for run, part, column, value in db.execute(query):
                    runs.setdefault(run, {}).setdefault(part, {})[column] = value
            return source_of(runs.values())
        if {"trials", "trial_params", "trial_values"} <= tables:
            with tempfile.TemporaryDirectory() as folder:  # optuna may write
                path = f"{folder}/copy.db"
                with contextlib.closing(sqlite3.connect(path)) as copy:
                    db.backup(copy)
                return _optuna(lambda optuna: _storage(optuna, path))
    known = ", ".join(sorted(tables))
    raise UserError(f"no storage of Optuna or MLflow; its tables: {known}")


def _storage(optuna: Any, path: str) -> Any:
    """Return a storage that closes each connection: Python 3.13 warns of an open one."""
    from sqlalchemy.pool import NullPool  # a dependency of optuna

    pool = {"poolclass": NullPool}
    return optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs=pool)


def read_journal(content: bytes) -> Source:
    """Return the trials of a journal of Optuna."""
    # Optuna reads a journal from a file only.
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return _optuna(
            lambda o: o.storages.JournalStorage(o.storages.journal.JournalFileBackend(file.name))
        )


def _optuna(opened: Any) -> Source:
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = opened(optuna)
        names = optuna.get_all_study_names(storage)
        studies = [optuna.load_study(study_name=name, storage=storage) for name in names]
        return _trials(studies)


def _trials(studies: Sequence[Any]) -> Source:
    """Return the trials of studies, each value by its number and by the name of its metric."""
    higher: dict[str, bool | None] = {}
    rows = []
    for study in studies:
        trials = study.get_trials(deepcopy=False)
        if not trials:
            continue
        columns = []
        for place, direction in enumerate(study.directions):
            names = ["value"]
            if place:
                names = [f"value_{place}"]
            if study.metric_names:
                names.append(study.metric_names[place])
            columns.append(names)
            # Two studies of one file may go in two directions; then none is known.
            for name in names:
                add_direction(higher, name, is_higher=DIRECTIONS.get(direction.name))
        for trial in trials:
            row = {
                "study": study.study_name,
                "number": trial.number,
                "state": trial.state.name,
            }
            for names, value in zip(columns, trial.values or (), strict=False):
                row |= dict.fromkeys(names, value)
            rows.append({"": row, "param": trial.params, "attr": trial.user_attrs})
    return source_of(rows, higher=higher)


def read_settings(file: Path) -> Row:
    """Return the settings of a JSON or YAML file; a `${name}` is replaced by its value."""
    if not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8")
    is_json = file.suffix == ".json"
    read = read_yaml
    if is_json:
        read = json_value
    found = read(text)
    if not isinstance(found, dict):
        return {}
    if is_json:
        found = {"config": found}
    row = flat_row(found)

    def value_of(reference: re.Match[str]) -> str:
        return str(row.get(reference[1], reference[0]) or NULL)

    for _, name in itertools.product(range(9), row):  # a reference may lead to another one
        if isinstance(row[name], str):
            row[name] = re.sub(REFERENCE, value_of, row[name])
    return row


REFERENCE = r"\$\{([\w./-]+)\}"
"""A reference to another setting, as OmegaConf and Hydra write it."""


def read_mlflow_run(folder: Path) -> tuple[str, RunParts]:
    """Return when a run of MLflow's folders began, "" if that is not known, and its parts.

    The last value of each metric counts, as MLflow has it.
    """
    meta = read_settings(folder / "meta.yaml")
    above = read_settings(folder.parent / "meta.yaml")
    run: Row = {RUN: meta.get("run_name") or folder.name, RUN_ID: folder.name}
    status = meta.get("status", "")
    run["status"] = MLFLOW["states"].get(status, status)
    run["experiment"] = above.get("name") or folder.parent.name
    stages = meta.get("lifecycle_stage"), above.get("lifecycle_stage")
    # MLflow moves deleted runs there.
    if ".trash" in folder.parts or "deleted" in stages:
        run["lifecycle_stage"] = "deleted"
    metrics: Row = {}
    for key, text in _texts_of(folder / "metrics").items():
        # Of equal steps and times, the larger number counts, as in MLflow.
        last = max(map(_logged, text.splitlines()))
        run[f"{key}{LAST_STEP}"], _, metrics[key] = last
    row: RunParts = {"": run, "metric": metrics}
    for kind in ("param", "tag"):
        texts = _texts_of(folder / f"{kind}s")
        if "mlflow.parentRunId" in texts:
            run["parent"] = texts["mlflow.parentRunId"]
        own = itertools.filterfalse(_is_of_mlflow, texts)
        row[kind] = {name: texts[name] for name in own}
    return meta.get("start_time", ""), row


def _is_of_mlflow(name: str) -> bool:
    return name.startswith("mlflow.")


def _texts_of(folder: Path) -> dict[str, str]:
    """Return what the files below a folder say, by their paths."""
    texts = {}
    for file in sorted(folder.glob("**/*")):
        if file.is_file():
            text = file.read_text().strip()
            if text:
                texts[str(file.relative_to(folder))] = text
    return texts


def _logged(line: str) -> tuple[int, int, float]:
    """Return the step, the time and the value of a line: time, value and, if it has one, step."""
    fields = line.split()
    if len(fields) == 2:
        fields.append("0")
    time, value, step = fields
    return int(step), int(time), number(value)


def read_wandb_logs(files: Sequence[Path], root: Path) -> Source:
    """Return the runs in logs that W&B writes on this machine, also while they are written.

    Logs of one id are one run, which was resumed.
    """
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    rows = {}
    higher: dict[str, bool | None] = {}
    for file in files:
        ours = place_of(file.parent, root)[""] | {"state": "running"}
        history: Row = {}
        config: Row = {}
        for content in _wandb_records(file.read_bytes()):
            try:
                record = wandb_internal_pb2.Record.FromString(content)  # type: ignore[attr-defined]
            except DecodeError:
                ours |= TORN
                break
            run = record.run
            if run.run_id:
                ours |= {
                    RUN_ID: run.run_id,
                    "group": run.run_group,
                    "job_type": run.job_type,
                    RUN: run.display_name or run.run_id,
                    "tags": ", ".join(run.tags),
                }
            metric = record.metric
            if metric.goal:
                higher[metric.name] = metric.goal == metric.GOAL_MAXIMIZE
            for items in (run.config.update, record.config.update):
                config |= _wandb_values(items)
            for items in (record.history.item, record.summary.update):
                history |= _wandb_values(items)
            # A log without its exit is of a run that still runs, or was killed.
            if record.HasField("exit"):
                ours["state"] = "finished"
                if record.exit.exit_code:
                    ours["state"] = "failed"
        parts = {"": ours, "metric": history, "config": flat_row({"config": config})}
        known = rows.setdefault(ours.get(RUN_ID) or str(file), {})
        for part, own in parts.items():
            known[part] = known.get(part, {}) | own
    notes = []
    resumed = len(files) - len(rows)
    if resumed:
        notes.append(f"logs that continue a run of the same id are a part of it: {resumed}")
    return source_of(rows.values(), higher=higher, notes=notes)


def _wandb_values(items: Iterable[Any]) -> Row:
    values = {}
    for item in items:
        name = item.key
        if item.nested_key:
            name = ".".join(item.nested_key)
        values |= flat_row({name: json.loads(item.value_json)})
    return values


def _wandb_records(content: bytes) -> Iterator[bytes]:
    """Yield the whole records of a log: blocks of parts, each with check, size and kind."""
    place = 7  # after the mark of the file
    parts = b""
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


def read_boards(folders: Sequence[Path], root: Path, settings: Sequence[str]) -> list[RunParts]:
    """Return a row per folder of event files; a sub-run of `add_hparams` is part of its run."""
    rows = {}
    for folder in folders:
        run = folder
        # `add_hparams` names its sub-run by the time.
        if folder.parent in rows and re.fullmatch(r"\d+\.\d+", folder.name):
            run = folder.parent
        parts: RunParts = {"": {}, "metric": {}, "config": {}}
        known = rows.setdefault(run, parts | place_of(run, root))
        for part, own in _board_run(folder).items():
            known[part] = own | known[part]
        for name in settings:  # those of an event file are all floats
            known["config"] |= read_settings(folder / name)
    return list(rows.values())


def _board_run(folder: Path) -> RunParts:
    """Return the settings and the scalars of a folder: those of the largest step."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util.tensor_util import make_ndarray

    # It makes tensors of scalars. 0: all events, not a sample of them.
    events = EventAccumulator(str(folder), {"tensors": 0})
    events.Reload()
    scalars = {}
    steps = {}
    for tag in events.Tags()["tensors"]:
        # Not all are written in order.
        last = sorted(events.Tensors(tag), key=lambda event: event.step)[-1]
        value = make_ndarray(last.tensor_proto)
        if value.size == 1 and value.dtype.kind in "fiub":
            scalars[tag] = float(value.item())
            steps[f"{tag}{LAST_STEP}"] = last.step
    config: Row = {}
    with contextlib.suppress(KeyError):
        for content in events.PluginTagToContent("hparams").values():
            data = plugin_data_pb2.HParamsPluginData.FromString(content)  # type: ignore[attr-defined]
            for key, own in data.session_start_info.hparams.items():
                config[key] = _setting(own)
    return {"": steps, "metric": scalars, "config": config}


def _setting(own: Any) -> Any:
    """Return a setting of an event file, which has whole numbers as floats."""
    value = getattr(own, own.WhichOneof("kind") or "string_value")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
