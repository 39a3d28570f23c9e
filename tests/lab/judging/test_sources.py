"""Sources: every way in which programs write the same eight runs has the same verdict."""

import contextlib
import functools
import gzip
import io
import itertools
import json
import lzma
import math
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import lmzoo
from lmzoo.base.errors import UserError
from lmzoo.lab.judging.account import Question
from lmzoo.lab.judging.sources import read_results
from lmzoo.lab.judging.texts import frame_of
from lmzoo.lab.judging.verdicts import judgement
from tests.cases import cases

RUNS = [
    (variant, seed, round(loss + 0.01 * seed + 0.001 * (seed % 2), 4))
    for variant, loss in (("base", 1.9), ("cand", 1.8))
    for seed in range(4)
]
OBJECTS = [dict(zip(("variant", "seed", "loss"), run, strict=True)) for run in RUNS]
NAMED = r"(?P<variant>[a-z]+)-s(?P<seed>\d+)"


def table(rows: Any = RUNS, head: str = "variant,seed,loss", sep: str = ",") -> str:
    names = head.split(sep if sep in head else ",")
    return "\n".join(sep.join(map(str, row)) for row in (names, *rows)) + "\n"


def changed(name: str, last: Any, good: Any = None, sep: str = ",") -> str:
    """Return the table with other cells of a column: those of the last run, and of the others."""
    rows = [row if good is None else {**row, name: good} for row in OBJECTS]
    rows[-1] = {**rows[-1], name: last}
    return table([row.values() for row in rows], ",".join(rows[0]), sep)


def put(file: Path, content: str | bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def heading(path: Any, **question: Any) -> str:
    report = judgement(path, Question(**{"by": "variant", "metric": "loss", **question}))
    return "\n".join((*report.opening, *report.closing, ""))


def said(content: str | bytes, folder: Path, name: str = "r.csv", **question: Any) -> str:
    return heading(put(folder / name, content), **question)


def written(write: Callable[[io.BytesIO], Any]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


LINES = "\n".join(json.dumps({**row, "note": "a\u2028b"}, ensure_ascii=False) for row in OBJECTS)
FILES: dict[str, tuple[str, bytes]] = {
    "UTF-16": ("r.txt", table(sep="\t").encode("utf-16")),
    "gzip": ("r.csv.gz", gzip.compress(table().encode())),
    "xz of JSON lines": ("r.xz", lzma.compress(LINES.encode())),
    "Parquet": ("r.parquet", written(pl.DataFrame(OBJECTS).write_parquet)),
    "Arrow": ("r.feather", written(pl.DataFrame(OBJECTS).write_ipc)),
}


def in_folders(
    path: Path, name: str, content: Callable[..., str | bytes], **others: Callable[..., str]
) -> None:
    """Write a file for each run, and others next to it; `name` may have {v}, {s} and {i}."""
    for i, (v, s, x) in enumerate(RUNS):
        file = put(path / name.format(v=v, s=s, i=i), content(v, s, x))
        for other, text in others.items():
            put(file.parent / other.replace("__", ".").replace("_S_", "/"), text(v, s, x))


def losses(v: str, s: int, x: float) -> str:
    return json.dumps({"loss": x})


def mlflow(path: Path) -> None:
    for i, (v, s, x) in enumerate(RUNS):
        for name, text in {
            "meta.yaml": f"run_name: r{i}\nstart_time: {i}\nstatus: 3\n", "params/variant": v,
            "params/seed": str(s), "metrics/loss": f"1 {x} 9\n2 9.0 1\n", "tags/mlflow.user": "x",
        }.items():  # fmt: skip
            put(path / "0" / f"{(7 * i) % 31:032x}" / name, text)
            put(path / "0/models/m-1" / name, text)  # a logged model


def hugging_face(path: Path) -> None:
    for v, s, x in RUNS:
        log = [{"step": 1, "loss": x + 1}, {"step": 2, "loss": x}, {"step": 2, "train_runtime": 9}]
        for place, length in ((".", 3), ("checkpoint-1", 1)):
            text = json.dumps({"best_metric": 0.1, "log_history": log[:length]})
            put(path / f"{v}-s{s}" / place / "trainer_state.json", text)


def tune(path: Path, last: str = "TERMINATED") -> None:
    trials = []
    for i, (v, s, x) in enumerate(RUNS):
        run = path / f"train_ab_{i:05}_{i}_seed={s},variant={v}_2026"
        own = {"trial_id": f"ab_{i:05}", "done": False}  # as a function of Ray Tune leaves it
        rows = [own | {"training_iteration": k, "loss": x + 2 - k} for k in (1, 2)]
        rows[1]["done"] = i % 2 == 0  # as a scheduler ends it
        put(run / "result.json", "\n".join(map(json.dumps, rows)) + "\n")
        put(run / "params.json", json.dumps({"variant": v, "seed": s}))
        status = last if i == len(RUNS) - 1 else "TERMINATED"
        trials.append([json.dumps({"trial_id": f"ab_{i:05}", "status": status}), "{}"])
    put(path / "experiment_state-1.json", json.dumps({"trial_data": trials}))


def boards(path: Path, last: int = 3) -> None:
    """Write event files; that of the last run ends after `last` steps."""
    from torch.utils.tensorboard import SummaryWriter

    for i, (v, s, x) in enumerate(RUNS):
        with SummaryWriter(path / f"{v}-s{s}") as board:
            for step in range(last if i == len(RUNS) - 1 else 3):
                board.add_scalar("loss", x + 2 - step, step)
            board.add_text("note", "two words")


def keras(path: Path) -> None:
    pytest.importorskip("tensorboard.compat.proto")
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for i, (v, s, x) in enumerate(RUNS):
        writer = EventFileWriter(str(path / f"{v}-s{s}" / "validation"))
        data = summary_pb2.SummaryMetadata(data_class=summary_pb2.DATA_CLASS_SCALAR)
        data.plugin_data.plugin_name = "scalars"
        for step in (1, 2):
            tensor = tensor_pb2.TensorProto(dtype=1, tensor_content=struct.pack("<f", x + 2 - step))
            if i % 2:
                tensor = tensor_pb2.TensorProto(dtype=2, double_val=[x + 2 - step])
            value = summary_pb2.Summary.Value(tag="loss", tensor=tensor, metadata=data)
            summary = summary_pb2.Summary(value=[value])
            writer.add_event(event_pb2.Event(step=step, wall_time=step, summary=summary))
        writer.close()


def database(path: Path) -> Any:
    """Return a storage of Optuna that leaves no connection open."""
    optuna = pytest.importorskip("optuna")
    pool = pytest.importorskip("sqlalchemy.pool").NullPool
    return optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs={"poolclass": pool})


def optuna(path: Path, direction: str = "minimize", name: str = "", *, journal: bool = True) -> Any:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if journal:
        files = optuna.storages.journal.JournalFileBackend(str(path))
        storage = optuna.storages.JournalStorage(files)
    else:
        storage = database(path)
    study = optuna.create_study(storage=storage, direction=direction, study_name="s")
    if name:
        with pytest.warns(optuna.exceptions.ExperimentalWarning):
            study.set_metric_names([name])
    choice = {"variant": optuna.distributions.CategoricalDistribution(["base", "cand"])}
    for v, s, x in RUNS:
        own = {"params": {"variant": v}, "distributions": choice, "user_attrs": {"seed": s}}
        study.add_trial(optuna.create_trial(**own, value=x))
    return study


def wandb(path: Path, last: int = -1) -> None:
    """Write the logs that W&B writes offline; the last one ends after `last` records."""
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    for i, (v, s, x) in enumerate(RUNS):
        records = [pb.Record() for _ in range(5)]
        records[0].run.display_name = f"r{i}"
        for key, value in (("variant", v), ("seed", s), ("notes", "n" * 40_000)):
            records[0].run.config.update.add(key=key, value_json=json.dumps(value))
        records[1].history.item.add(nested_key=["loss"], value_json=str(x + 1))
        records[2].summary.update.add(nested_key=["loss"], value_json=str(x))
        records[3].exit.exit_code = 0
        content = b":W&B\xe1\xbe\0"
        for record in records[: 4 if i < len(RUNS) - 1 else last]:
            data, is_first = record.SerializeToString(), True
            while data or is_first:
                room = 2**15 - len(content) % 2**15 - 7
                part, data = data[:room], data[room:]
                kind = (1 if is_first else 4) if not data else 2 if is_first else 3
                content += struct.pack("<IHB", 0, len(part), kind) + part
                is_first = False
        put(path / f"offline-run-{i}" / f"run-{i}.wandb", content)


def hparams(v: str, s: int, x: float) -> str:
    return f"model:\n  variant: '{v}'  # a name\n  sizes:\n  - 3\nseed: {s}\nnote: null\n"


def files(name: str, content: Callable[..., str | bytes] = losses, **others: Any) -> Any:
    return functools.partial(in_folders, name=name, content=content, **others)


YAML = {"by": "model.variant"}
FOLDERS: dict[str, tuple[Callable[[Path], Any], dict[str, Any], str]] = {
    "logs of W&B": (wandb, {"by": "config.variant"}, "8 rows"),
    "summaries of W&B": (
        files("r{i}/files/wandb-summary.json", config__yaml=lambda v, s, x: (
            f"variant:\n  desc: x\n  value: {v}\nseed:\n  value: {s}"
        )), {}, "8 rows",
    ),
    "MLflow": (mlflow, {}, "8 rows"),
    "Optuna": (lambda p: optuna(p, journal=False), {"metric": "value"}, "8 rows"),
    "journal of Optuna": (optuna, {"metric": "value"}, "8 rows"),
    "a named metric of Optuna": (lambda p: optuna(p, name="loss"), {}, "8 rows"),
    "TensorBoard": (boards, {"parse": NAMED, "reference": "base"}, "8 rows"),
    "Keras": (keras, {"parse": NAMED, "reference": "base"}, "8 rows"),
    "Hugging Face": (hugging_face, {"parse": NAMED}, "24 rows read: 8 counted, 16 other"),
    "Ray Tune": (tune, {"by": "config.variant"}, "16 rows read: 8 counted, 8 other"),
    "Lightning": (
        files("version_{i}/metrics.csv", lambda v, s, x: (
            f"step,train,loss\n9,3,\n9,,{x + 1}\n19,,{x}\n29,1,\n"
        ), hparams__yaml=hparams), YAML, "32 rows read: 8 counted, 24 other",
    ),
    "Sacred": (
        files("{i}/metrics.json", lambda v, s, x: json.dumps({
            "loss": {"steps": [1, 2], "values": [x + 1, x]}, "lr": {"steps": [1], "values": [0]}
        }), config__json=lambda v, s, x: json.dumps({"variant": v, "seed": s}),
            run__json=lambda v, s, x: '{"status": "COMPLETED"}'),
        {"by": "config.variant"}, "16 rows read: 8 counted, 8 other",
    ),
    "Spinning Up": (
        files("{v}-s{s}/progress.txt", lambda v, s, x: f"Epoch\tloss\n1\t{x + 1}\n2\t{x}\n"),
        {"parse": NAMED, "step": "Epoch"}, "16 rows read: 8 counted, 8 other",
    ),
    "Keras's History": (
        files("{v}-s{s}/history.json", lambda v, s, x: json.dumps({"loss": [x + 1, x]})),
        {"parse": NAMED, "step": "epoch"}, "16 rows read: 8 counted, 8 other",
    ),
    "Keras's CSVLogger": (
        files("{v}-s{s}/training.log", lambda v, s, x: f"epoch,loss\n0,{x + 1}\n1,{x}\n"),
        {"parse": NAMED}, "16 rows read: 8 counted, 8 other",
    ),
    "a history beside a result": (
        files("{i}.json", lambda v, s, x: json.dumps({
            "variant": v, "seed": s, "loss": x, "curve": [3, 2], "norms": [1, 1]
        })), {}, "16 rows read: 8 counted, 8 other",
    ),
    "mmengine": (
        files("{v}-s{s}/scalars.json", losses, other__json=losses), {"parse": NAMED}, "8 rows",
    ),
    "Hydra": (files("{i}/results.json", __hydra_S_config__yaml=hparams), YAML, "8 rows"),
    "settings next to results": (
        files("{i}/results.json", config__json=lambda v, s, x: (
            json.dumps({"variant": v, "seed": s})
        )), {"by": "config.variant"}, "8 rows",
    ),
    "settings in a path": (files("seed={s},variant={v}/r.json"), {}, "8 rows"),
    "parts of Parquet": (
        files("variant={v}/seed={s}/part-0.parquet", lambda v, s, x: (
            written(pl.DataFrame({"loss": [x]}).write_parquet)
        )), {}, "8 rows",
    ),
    "hidden files and compressed ones": (
        files("{v}-s{s}.jsonl.gz", lambda *run: gzip.compress(losses(*run).encode()),
              ___x__json=lambda *run: "\1"), {"parse": NAMED}, "8 rows",
    ),
}  # fmt: skip


@cases("lab/judging/cases.toml", "forms")
def test_every_form_of_a_file_has_the_same_verdict(case, tmp_path):
    found = said(case["content"], tmp_path, case["name"])
    assert "1 better\n" in found
    assert "8 rows read: 8 counted\n" in found
    assert "paired by" in found


@pytest.mark.parametrize("kind", [*FILES, *FOLDERS])
def test_every_source_of_the_same_runs_has_the_same_verdict(kind, tmp_path):
    write, question, counts = FOLDERS.get(kind, (None, {}, "8 rows read: 8 counted\n"))
    if write is None:
        found = said(FILES[kind][1], tmp_path, FILES[kind][0])
    else:
        write(tmp_path / "results")
        found = heading(tmp_path / "results", **question)
    assert "1 better\n" in found
    assert counts in found
    assert "paired by" in found


def test_a_file_that_is_not_read_and_says_otherwise_is_named(tmp_path):
    hugging_face(tmp_path)
    for (v, s, x), wrong in zip(RUNS, (9.0, None, "high"), strict=False):
        put(tmp_path / f"{v}-s{s}" / "all_results.json", json.dumps({"loss": wrong or x}))
    found = heading(tmp_path, parse=NAMED)
    assert "says otherwise: all_results.json has 9, 1.9 counts (base-s0)\n" in found


@cases("lab/judging/cases.toml", "states")
def test_a_run_counts_only_in_a_known_good_state(case, tmp_path):
    found = said(changed(case["column"], case["bad"], case["good"]), tmp_path)
    assert f"8 rows read: 6 counted, 1 {case['says']}, 1 without a pair" in found


def test_other_columns_are_no_states_and_divergence_is_a_count(tmp_path):
    for column, good, bad in (("error", "0.12", "0.5"), ("why", "error", "oom")):
        found = said(changed(column, bad, good), tmp_path)
        assert "8 rows read: 8 counted\n" in found
        assert "no state" not in found
    for column, good, bad in (("ok", "1", "0"), ("finished", "WAHR", ""), ("valid", "T", "F")):
        found = said(changed(column, bad, good), tmp_path)
        assert "8 rows read: 8 counted\n" in found
        assert f"{column} (" in found
        assert "is no state: all rows count; is that right?" in found
    for column, good, bad in (("diverged", "False", "True"), ("status", "finished", "diverged")):
        found = said(changed(column, bad, good), tmp_path)
        assert "8 rows read: 7 counted, 1 diverged" in found


def test_a_state_of_ones_own_is_named_or_refused(tmp_path):
    with pytest.raises(UserError, match=r"no row has finished.*'fine'.*--finished"):
        said(changed("status", "fine", "fine"), tmp_path)
    found = said(changed("status", "bad", "fine"), tmp_path, finished=["Fine"])
    assert "1 not finished (status 'bad')" in found
    found = said(changed("done", "False", "False"), tmp_path, finished=["false"])
    assert "8 counted" in found


@cases("lab/judging/cases.toml", "unreadable")
def test_a_file_that_cannot_be_read_is_one_line(case, tmp_path):
    name = case["name"]
    if "content" in case:
        put(tmp_path / name, case["content"].encode("latin-1") * case.get("times", 1))
    with pytest.raises(UserError) as error:
        read_results(tmp_path / name)
    assert case["says"] in str(error.value)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_damage_that_makes_polars_panic_is_an_error_too(tmp_path, capfd):
    content, errors = written(pl.DataFrame(OBJECTS).write_ipc), 0
    for place in range(300, len(content)):
        damaged = content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]
        try:
            read_results(put(tmp_path / "r.feather", damaged))
        except UserError as error:
            errors += "it is damaged" in str(error)
    assert errors
    assert capfd.readouterr().err == ""


def test_what_a_source_knows_of_a_run_counts(tmp_path):
    tune(tmp_path / "t", "ERROR")
    grid = SimpleNamespace(experiment_path=str(tmp_path / "t"))
    for given in (tmp_path / "t", grid):
        assert "2 not finished (status 'ERROR')" in heading(given, by="config.variant")
    put(tmp_path / "t" / "experiment_state-1.json", '{"trial_data": {"a": 1}}')
    with pytest.raises(UserError, match="has no states of trials"):
        heading(tmp_path / "t", by="config.variant")
    (tmp_path / "t" / "experiment_state-1.json").unlink()
    put(next((tmp_path / "t").glob("*seed=3,variant=cand*")) / "error.txt", "killed")
    assert "2 not finished (error.txt)" in heading(tmp_path / "t", by="config.variant")
    boards(tmp_path / "b", 2)
    found = heading(tmp_path / "b", parse=NAMED, reference="base")
    assert "step 2, judged by their last value: variant 'cand', seed 3 (at 1)" in found
    mlflow(tmp_path / "f")
    put(tmp_path / "f/0" / f"{0:032x}" / "metrics/loss", "x")
    with pytest.raises(UserError, match=r"0/0+ has a damaged file: .*; delete it"):
        heading(tmp_path / "f")
    (tmp_path / "f/0" / f"{49 % 31:032x}" / "meta.yaml").unlink()
    put(tmp_path / "f/0" / f"{0:032x}" / "metrics/loss", "1 1.9 9")
    assert "1 not finished (status '')" in heading(tmp_path / "f")
    write, question, _ = FOLDERS["Hydra"]
    write(tmp_path / "h")
    (tmp_path / "h/7/results.json").unlink()
    assert "8 rows read: 6 counted" in heading(tmp_path / "h", **question)
    put(tmp_path / "t" / "more" / "progress.csv", "loss\n1\n")
    put(tmp_path / "t" / "board" / "events.out.tfevents.1", "")
    assert "not read: 1 event file, 1 progress.csv" in heading(tmp_path / "t", by="config.variant")
    wandb(tmp_path / "w", 2)
    assert "1 not finished (state 'running')" in heading(tmp_path / "w", by="config.variant")
    optuna(tmp_path / "o")
    with pytest.raises(UserError, match="contradicts the study, which minimises value"):
        heading(tmp_path / "o", metric="value", higher_is_better=True)
    optuna(tmp_path / "m", "maximize")
    found = heading(tmp_path / "m", metric="value")
    assert "1 worse" in found
    assert "value, higher is better" in found


def test_a_storage_of_mlflow_holds_its_runs_and_says_which_are_deleted(tmp_path):
    with sqlite3.connect(tmp_path / "mlflow.db") as db:
        db.executescript("""
            CREATE TABLE experiments (experiment_id, name, lifecycle_stage);
            INSERT INTO experiments VALUES (0, 'e', 'active'), (1, 'f', 'deleted');
            CREATE TABLE runs (run_uuid, name, status, lifecycle_stage, start_time, experiment_id);
            INSERT INTO runs VALUES
                ('1', 'b', 'FINISHED', 'active', 2, 0), ('2', '', 'FAILED', 'active', 1, 0),
                ('3', 'b', 'FINISHED', 'deleted', 0, 0), ('4', 'c', 'FINISHED', 'active', 3, 1);
            CREATE TABLE latest_metrics (run_uuid, key, value, is_nan, step);
            INSERT INTO latest_metrics VALUES ('1', 'loss', 0.5, 0, 9), ('2', 'loss', 0.0, 1, 7),
                ('4', 'loss', 1.7976931348623157e308, 0, 9);
            CREATE TABLE params (run_uuid, key, value);
            CREATE TABLE tags (run_uuid, key, value);
            INSERT INTO params VALUES ('1', 'lr', 'x'), ('2', 'lr', 'params'), ('1', 'loss', 'z');
            INSERT INTO tags VALUES ('2', 'lr', 'tags'), ('1', 'mlflow.user', 'y'),
                ('1', 'mlflow.parentRunId', '4');
        """)
    db.close()
    step = "loss (last step)"
    keys = ("run", "run_id", "status", "experiment", "lifecycle_stage", "parent", "loss", step)
    rows = [
        ("b", "3", "FINISHED", "e", "deleted", None, None, None),
        ("2", "2", "FAILED", "e", None, None, "nan", "7"),
        ("b", "1", "FINISHED", "e", None, "4", "0.5", "9"),
        ("c", "4", "FINISHED", "f", "deleted", None, "inf", "9"),
    ]
    found = read_results(tmp_path).frame
    assert found.select(keys).rows() == rows
    assert found["lr", "param.loss", "tag.lr"].row(1) == ("params", None, "tags")
    assert found["param.loss"][2] == "z"


def test_a_database_whose_writer_was_killed_is_refused_in_one_line(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (1); PRAGMA cache_size=1;")
        db.execute("INSERT INTO t SELECT zeroblob(9000) FROM t")
        db.executemany("INSERT INTO t VALUES (?)", [(bytes(9000),)] * 99)
        for name in ("", "-journal"):
            put(tmp_path / f"b.db{name}", (tmp_path / f"a.db{name}").read_bytes())
    with pytest.raises(UserError, match="open it once with the program that wrote it"):
        read_results(tmp_path / "b.db")


def test_a_storage_of_optuna_holds_values_settings_and_states(tmp_path):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = database(tmp_path / "o.db")
    odd = tmp_path / "a%20b?c#d.db"
    study = optuna.create_study(storage=storage, study_name="s", directions=["minimize"] * 2)
    of = optuna.distributions
    own = {"rate": of.FloatDistribution(0, 1), "kind": of.CategoricalDistribution("ab")}
    params = {"rate": 0.25, "kind": "b"}
    study.add_trial(optuna.create_trial(values=[math.inf, 1.25], params=params, distributions=own))
    study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
    shared = {"study": "s", "number": 0, "state": "COMPLETE", "value": math.inf, "value_1": 1.25}
    failed = {"study": "s", "number": 1, "state": "FAIL"}
    expected = frame_of([{**shared, "rate": 0.25, "kind": "b"}, failed])
    odd.write_bytes((tmp_path / "o.db").read_bytes())
    for path in (tmp_path / "o.db", odd):
        assert read_results(path).frame.select(expected.columns).equals(expected)


def test_a_parameter_of_epochs_orders_no_trials(tmp_path):
    optuna = pytest.importorskip("optuna")
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / "o"))
    )
    study = optuna.create_study(storage=storage)
    of = optuna.distributions
    own = {"arm": of.CategoricalDistribution("ab"), "epochs": of.IntDistribution(0, 9)}
    for arm, epochs in itertools.product("ab", range(3)):
        params = {"arm": arm, "epochs": epochs}
        trial = optuna.create_trial(params=params, distributions=own, value=epochs + (arm == "b"))
        study.add_trial(trial)
    assert "6 rows read: 6 counted" in heading(tmp_path / "o", by="arm", metric="value")


@cases("lab/judging/cases.toml", "files")
def test_a_file_has_the_rows_of_its_runs(case, tmp_path):
    found = read_results(put(tmp_path / case["name"], case["content"])).frame
    assert json.dumps(found.to_dict(as_series=False)) == case["columns"]


def test_a_history_beside_a_result_and_settings_of_epochs_are_no_runs(tmp_path):
    FOLDERS["a history beside a result"][0](tmp_path / "a")
    assert "rows of one run that have one value count once: variant 'base'" in heading(
        tmp_path / "a"
    )
    write = files("{i}/r.json", config__json=lambda v, s, x: json.dumps({"v": v, "epochs": s}))
    write(tmp_path / "b")
    found = heading(tmp_path / "b", by="config.v")
    assert "is config.epochs a seed (--seed)" in found
    assert "8 rows read: 8 counted" in found


def test_a_mean_beside_the_files_of_seeds_is_no_run(tmp_path):
    files("{v}/seed{s}.json")(tmp_path)
    put(tmp_path / "base" / "mean.json", losses("base", 0, 0.1))
    found = heading(tmp_path, by="part1")
    assert "9 rows read: 8 counted, 1 means and other summaries" in found


def test_a_monitor_of_episodes_is_a_run_and_truth_values_are_shares(tmp_path):
    episodes = [*[("9.0", 1, "late", False)] * 7, *[("2.0", 3, "early", True)] * 100]
    text = '#{"t_start": 1.5}\n' + table(episodes, "r,l,why,success")
    found = read_results(put(tmp_path / "monitor.csv", text))
    assert found.frame.to_dicts() == [{"r": 2.0, "l": 3.0, "why": None, "success": 1.0}]
    assert found.notes == ["a monitor is a run: means of its last 100 episodes"]


def test_settings_of_yaml_are_read_and_resolved(tmp_path):
    write, question, _ = FOLDERS["Hydra"]
    write(tmp_path / "h")
    for text in ("{variant: cand, o: [1]}", "{variant: '${a.b}'}", "{<<: *x, c: '${no}'}"):
        put(
            tmp_path / "h/7/.hydra/config.yaml",
            f"a: &x {{b: cand, variant: cand}}\nmodel: {text}\nseed: 3\n",
        )
        assert "8 rows read: 8 counted" in heading(tmp_path / "h", **question)
    with pytest.raises(UserError, match=r"model.c is '\$\{no\}', whose value is not in its file"):
        heading(tmp_path / "h", **question | {"by": "model.c"})


def test_pandas_frames_are_judged_too():
    pandas = pytest.importorskip("pandas")
    for nothing in (math.nan, pandas.NA):
        frame = pandas.DataFrame(OBJECTS).astype({"loss": object, "variant": "category"})
        frame.loc[0, "loss"], frame["end"], frame["time"] = nothing, pandas.NaT, pandas.Timedelta(1)
        found = lmzoo.judge(frame, by="variant", metric="loss")
        assert found.filter(variant="base")["missing"].item() == 1


RESERVED = (
    "value", "run", "run_id", "status", "state", "step", "seed", "number", "study", "experiment",
    "parent", "loss (last step)", "part1", "metric", "param", "config", "name", "done", "trial_id",
)  # fmt: skip


def one_run_of_mlflow(p: Path, settings: dict[str, Any], metrics: dict[str, Any]) -> None:
    run = p / "0/r"
    put(run / "meta.yaml", "run_name: r\nstatus: 3\n")
    for name, value in settings.items():
        put(run / "params" / name, str(value))
    for name, value in metrics.items():
        put(run / "metrics" / name, f"1 {value} 9")


READERS: dict[str, Callable[[Path, dict[str, Any], dict[str, Any]], Any]] = {
    "MLflow": one_run_of_mlflow,
    "Ray Tune": lambda p, settings, metrics: [
        put(p / "r/result.json", json.dumps({"training_iteration": 1, **metrics})),
        put(p / "r/params.json", json.dumps(settings)),
    ],
    "Hydra": lambda p, settings, metrics: [
        put(p / "r/results.json", json.dumps(metrics)),
        put(p / "r/.hydra/config.yaml", json.dumps(settings)),
    ],
    "folders": lambda p, settings, metrics: put(
        p / ",".join(f"{k}={v}" for k, v in settings.items()) / "r.json", json.dumps(metrics)
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", ["variant", "seed", "metric", "label"])
def test_a_name_of_ours_is_a_name_like_any_other_in_a_file(reader, place, tmp_path):
    runs = [run for run in RUNS if run[1] < 2]
    for word in RESERVED:
        if reader == "folders" and " " in word:
            continue  # no setting in a path has a blank
        names = {"variant": "arm", "seed": "draw", "metric": "nll", "label": "base", place: word}
        labels = {"base": names["label"], "cand": "cand"}
        folder = tmp_path / word
        for i, (v, s, x) in enumerate(runs):
            settings = {names["variant"]: labels[v], names["seed"]: s}
            READERS[reader](folder / str(i), settings, {names["metric"]: x})
        frame = read_results(folder).frame
        columns = {
            kind: [c for c in frame.columns if frame[c].to_list() == [str(x) for x in own]]
            for kind, own in zip(names, zip(*runs, strict=True), strict=False)
        }
        columns["variant"] = [
            c for c in frame.columns if frame[c].to_list() == [labels[v] for v, *_ in runs]
        ]
        by, seed, metric = (columns[kind][-1] for kind in ("variant", "seed", "metric"))
        table = lmzoo.judge(folder, by=by, seed=seed, metric=metric, higher_is_better=False)
        means = {row["variant"]: row["mean"] for row in table.to_dicts()}
        assert means == pytest.approx({labels["base"]: 1.9055, "cand": 1.8055}), word
