"""Sources: every way in which programs write the same eight runs has the same verdict."""

import contextlib
import gzip
import io
import itertools
import json
import lzma
import math
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from string import Template
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
from tests.cases import cases, rows
from tests.user_errors import raises_user_error

COLUMNS = ("variant", "seed", "loss")
RUNS = [tuple(run) for run in rows("lab/judging/cases.toml", "runs")]
OBJECTS = [dict(zip(COLUMNS, run, strict=True)) for run in RUNS]
NAMED = r"(?P<variant>[a-z]+)-s(?P<seed>\d+)"


def table(rows: Any = RUNS, head: str = "variant,seed,loss", sep: str = ",") -> str:
    lines = [head.replace(",", sep)]
    for row in rows:
        lines.append(sep.join(map(str, row)))
    return "\n".join(lines) + "\n"


def changed(name: str, last: Any, good: Any = None) -> str:
    """Return the table with other cells of a column: those of the last run, and of the others."""
    rows = []
    for run in OBJECTS:
        row = run.copy()
        if good is not None:
            row[name] = good
        rows.append(row)
    rows[-1][name] = last
    head = ",".join(rows[0])
    return table([row.values() for row in rows], head)


def put(file: Path, content: str | bytes) -> Path:
    if isinstance(content, str):
        content = content.encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def put_json(file: Path, content: object) -> Path:
    return put(file, json.dumps(content))


def heading(path: Any, **question: Any) -> str:
    asked = {"by": "variant", "metric": "loss"} | question
    report = judgement(path, Question(**asked))
    lines = list(report.opening) + list(report.closing)
    return "\n".join(lines) + "\n"


def said(content: str | bytes, folder: Path, name: str = "r.csv", **question: Any) -> str:
    return heading(put(folder / name, content), **question)


def written(write: Callable[[io.BytesIO], Any]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def json_lines() -> str:
    """Return the runs as lines of JSON, with a character at which `splitlines` splits."""
    lines = []
    for run in OBJECTS:
        noted = run | {"note": "a\u2028b"}
        lines.append(json.dumps(noted, ensure_ascii=False))
    return "\n".join(lines)


FRAME = pl.DataFrame(OBJECTS)
FILES: dict[str, bytes] = {
    "UTF-16.txt": table(sep="\t").encode("utf-16"),
    "gzip.csv.gz": gzip.compress(table().encode()),
    "JSON lines.xz": lzma.compress(json_lines().encode()),
    "Parquet.parquet": written(FRAME.write_parquet),
    "Arrow.feather": written(FRAME.write_ipc),
}
FOLDERS = {case["kind"]: case for case in rows("lab/judging/cases.toml", "folders")}
"""Files of each run; `$more` is the loss of an earlier step."""


def write_folder(path: Path, kind: str) -> None:
    for number, (variant, seed, loss) in enumerate(RUNS):
        values = {"i": number, "v": variant, "s": seed, "x": loss, "more": loss + 1}
        for name, content in FOLDERS[kind]["files"].items():
            file = path / Template(name).substitute(values)
            put(file, Template(content).substitute(values))


def mlflow(path: Path) -> None:
    for number, (variant, seed, loss) in enumerate(RUNS):
        run = {
            "meta.yaml": f"run_name: r{number}\nstart_time: {number}\nstatus: 3\n",
            "params/variant": variant,
            "params/seed": str(seed),
            # Time, value and step: the last step counts, not the last line.
            "metrics/loss": f"1 {loss} 9\n2 9.0 1\n",
            "tags/mlflow.user": "x",
        }
        for name, text in run.items():
            put(path / "0" / mlflow_id(number) / name, text)
            put(path / "0/models/m-1" / name, text)  # a logged model


def mlflow_id(number: int) -> str:
    """Return the name of a run; the names have another order than the times."""
    return f"{7 * number % 31:032x}"


def hugging_face(path: Path) -> None:
    for variant, seed, loss in RUNS:
        first = {"step": 1, "loss": loss + 1}
        second = {"step": 2, "loss": loss}
        # The last line of a log has no loss.
        log = [first, second, {"step": 2, "train_runtime": 9}]
        run = path / f"{variant}-s{seed}"
        put_json(run / "trainer_state.json", {"best_metric": 0.1, "log_history": log})
        state = {"best_metric": 0.1, "log_history": [first]}
        put_json(run / "checkpoint-1/trainer_state.json", state)


def tune(path: Path, last: str = "TERMINATED") -> None:
    trials = []
    for number, (variant, seed, loss) in enumerate(RUNS):
        run = path / f"train_ab_{number:05}_{number}_seed={seed},variant={variant}_2026"
        name = f"ab_{number:05}"
        # As a function of Ray Tune leaves it, and as a scheduler ends it.
        is_ended = number % 2 == 0
        second = {"trial_id": name, "done": is_ended, "training_iteration": 2, "loss": loss}
        first = second | {"done": False, "training_iteration": 1, "loss": loss + 1}
        put(run / "result.json", f"{json.dumps(first)}\n{json.dumps(second)}\n")
        put_json(run / "params.json", {"variant": variant, "seed": seed})
        trials.append({"trial_id": name, "status": "TERMINATED"})
    trials[-1]["status"] = last
    data = [[json.dumps(trial), "{}"] for trial in trials]
    put_json(path / "experiment_state-1.json", {"trial_data": data})


def boards(path: Path, last: int = 3) -> None:
    """Write event files; that of the last run ends after `last` steps."""
    from torch.utils.tensorboard import SummaryWriter

    for number, (variant, seed, loss) in enumerate(RUNS):
        steps = 3
        if number == len(RUNS) - 1:
            steps = last
        with SummaryWriter(path / f"{variant}-s{seed}") as board:
            for step in range(steps):
                board.add_scalar("loss", loss + 2 - step, step)
            board.add_text("note", "two words")


def keras(path: Path) -> None:
    pytest.importorskip("tensorboard.compat.proto")
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for number, (variant, seed, loss) in enumerate(RUNS):
        writer = EventFileWriter(str(path / f"{variant}-s{seed}" / "validation"))
        data = summary_pb2.SummaryMetadata(data_class=summary_pb2.DATA_CLASS_SCALAR)
        data.plugin_data.plugin_name = "scalars"
        for step in (1, 2):
            value = loss + 2 - step
            # A tensor has its number as bytes or as a list.
            if number % 2:
                tensor = tensor_pb2.TensorProto(dtype=2, double_val=[value])
            else:
                content = struct.pack("<f", value)
                tensor = tensor_pb2.TensorProto(dtype=1, tensor_content=content)
            scalar = summary_pb2.Summary.Value(tag="loss", tensor=tensor, metadata=data)
            summary = summary_pb2.Summary(value=[scalar])
            event = event_pb2.Event(step=step, wall_time=step, summary=summary)
            writer.add_event(event)
        writer.close()


def database(path: Path) -> Any:
    """Return a storage of Optuna that leaves no connection open."""
    optuna = pytest.importorskip("optuna")
    pool = pytest.importorskip("sqlalchemy.pool").NullPool
    return optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs={"poolclass": pool})


def journal(path: Path) -> Any:
    optuna = pytest.importorskip("optuna")
    files = optuna.storages.journal.JournalFileBackend(str(path))
    return optuna.storages.JournalStorage(files)


def optuna(storage: Any, direction: str = "minimize") -> Any:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=storage, direction=direction, study_name="s")
    choice = optuna.distributions.CategoricalDistribution(["base", "cand"])
    for variant, seed, loss in RUNS:
        trial = optuna.create_trial(
            params={"variant": variant},
            distributions={"variant": choice},
            user_attrs={"seed": seed},
            value=loss,
        )
        study.add_trial(trial)
    return study


def optuna_with_a_name(path: Path) -> None:
    study = optuna(journal(path))
    experimental = pytest.importorskip("optuna").exceptions.ExperimentalWarning
    with pytest.warns(experimental):
        study.set_metric_names(["loss"])


def wandb(path: Path, last: int = 4) -> None:
    """Write the logs that W&B writes offline; the last one ends after `last` records."""
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    for number, (variant, seed, loss) in enumerate(RUNS):
        run = pb.Record()
        run.run.display_name = f"r{number}"
        # The notes fill more than a block of the log.
        config = {"variant": variant, "seed": seed, "notes": "n" * 40_000}
        for key, value in config.items():
            run.run.config.update.add(key=key, value_json=json.dumps(value))
        history = pb.Record()
        history.history.item.add(nested_key=["loss"], value_json=str(loss + 1))
        summary = pb.Record()
        summary.summary.update.add(nested_key=["loss"], value_json=str(loss))
        end = pb.Record()
        end.exit.exit_code = 0
        records = [run, history, summary, end]
        if number == len(RUNS) - 1:
            del records[last:]
        content = wandb_log([record.SerializeToString() for record in records])
        put(path / f"offline-run-{number}" / f"run-{number}.wandb", content)


KINDS = {
    (True, True): 1,
    (True, False): 2,
    (False, False): 3,
    (False, True): 4,
}
"""Whether a chunk begins a record, and whether it ends it -> its kind."""


def wandb_log(records: list[bytes]) -> bytes:
    """Return a log in blocks of 32 KiB; a record that ends beyond its block has several chunks."""
    # The header of a file; that of a chunk has seven bytes: checksum, length and kind.
    content = b":W&B\xe1\xbe\0"
    for record in records:
        begins = True
        while record or begins:
            in_block = len(content) % 2**15
            room = 2**15 - in_block - 7
            part = record[:room]
            record = record[room:]
            kind = KINDS[begins, not record]
            content += struct.pack("<IHB", 0, len(part), kind) + part
            begins = False
    return content


def parts_of_parquet(path: Path) -> None:
    for variant, seed, loss in RUNS:
        content = written(pl.DataFrame({"loss": [loss]}).write_parquet)
        put(path / f"variant={variant}/seed={seed}/part-0.parquet", content)


def hidden_and_compressed(path: Path) -> None:
    for variant, seed, loss in RUNS:
        content = json.dumps({"loss": loss}).encode()
        put(path / f"{variant}-s{seed}.jsonl.gz", gzip.compress(content))
    # As macOS writes for each file.
    put(path / "._x.json", "\1")


BY_NAME = {"parse": NAMED}
BY_CONFIG = {"by": "config.variant"}
VALUE = {"metric": "value"}
PROGRAMS = {
    "logs of W&B": (wandb, BY_CONFIG, "8 rows"),
    "MLflow": (mlflow, {}, "8 rows"),
    "Optuna": (lambda path: optuna(database(path)), VALUE, "8 rows"),
    "journal of Optuna": (lambda path: optuna(journal(path)), VALUE, "8 rows"),
    "a named metric of Optuna": (optuna_with_a_name, {}, "8 rows"),
    "TensorBoard": (boards, BY_NAME | {"reference": "base"}, "8 rows"),
    "Keras": (keras, BY_NAME | {"reference": "base"}, "8 rows"),
    "Hugging Face": (hugging_face, BY_NAME, "24 rows read: 8 counted, 16 other"),
    "Ray Tune": (tune, BY_CONFIG, "16 rows read: 8 counted, 8 other"),
    "parts of Parquet": (parts_of_parquet, {}, "8 rows"),
    "hidden files and compressed ones": (hidden_and_compressed, BY_NAME, "8 rows"),
}
"""What writes results, the question about them, and the account."""


def assert_better(found: str, counts: str) -> None:
    assert "1 better\n" in found
    assert counts in found
    assert "paired by" in found


ALL_COUNT = "8 rows read: 8 counted\n"


@cases("lab/judging/cases.toml", "forms")
def test_every_form_of_a_file_has_the_same_verdict(case, tmp_path):
    assert_better(said(case["content"], tmp_path, case["name"]), ALL_COUNT)


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_has_the_same_verdict(name, tmp_path):
    assert_better(said(FILES[name], tmp_path, name), ALL_COUNT)


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_folder_of_files_has_the_same_verdict(kind, tmp_path):
    write_folder(tmp_path / "results", kind)
    case = FOLDERS[kind]
    found = heading(tmp_path / "results", **case.get("question", {}))
    assert_better(found, case.get("counts", "8 rows"))


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_every_program_writes_has_the_same_verdict(kind, tmp_path):
    write, question, counts = PROGRAMS[kind]
    write(tmp_path / "results")
    assert_better(heading(tmp_path / "results", **question), counts)


def test_a_file_that_is_not_read_and_says_otherwise_is_named(tmp_path):
    hugging_face(tmp_path)
    put_json(tmp_path / "base-s0/all_results.json", {"loss": 9.0})
    # The same loss, and one that is no number: neither says otherwise.
    put_json(tmp_path / "base-s1/all_results.json", {"loss": RUNS[1][2]})
    put_json(tmp_path / "base-s2/all_results.json", {"loss": "high"})
    found = heading(tmp_path, parse=NAMED)
    assert "says otherwise: all_results.json has 9, 1.9 counts (base-s0)\n" in found


@cases("lab/judging/cases.toml", "states")
def test_a_run_counts_only_in_a_known_good_state(case, tmp_path):
    content = changed(case["column"], case["bad"], case["good"])
    found = said(content, tmp_path)
    assert f"8 rows read: 6 counted, 1 {case['says']}, 1 without a pair" in found


@pytest.mark.parametrize(
    ("column", "good", "other"), [("error", "0.12", "0.5"), ("why", "error", "oom")]
)
def test_numbers_and_reasons_are_no_states(column, good, other, tmp_path):
    found = said(changed(column, other, good), tmp_path)
    assert ALL_COUNT in found
    assert "no state" not in found


@pytest.mark.parametrize(
    ("column", "good", "other"), [("ok", "1", "0"), ("finished", "WAHR", ""), ("valid", "T", "F")]
)
def test_a_column_that_may_be_a_state_is_said(column, good, other, tmp_path):
    found = said(changed(column, other, good), tmp_path)
    assert ALL_COUNT in found
    assert f"{column} (" in found
    assert "is no state: all rows count; is that right?" in found


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [("diverged", "False", "True"), ("status", "finished", "diverged")],
)
def test_divergence_is_a_count(column, good, bad, tmp_path):
    found = said(changed(column, bad, good), tmp_path)
    assert "8 rows read: 7 counted, 1 diverged" in found


def test_without_a_known_good_state_the_user_must_name_it(tmp_path):
    with pytest.raises(UserError, match=r"no row has finished.*'fine'.*--finished"):
        said(changed("status", "fine", "fine"), tmp_path)


def test_a_state_of_ones_own_is_named(tmp_path):
    content = changed("status", "bad", "fine")
    found = said(content, tmp_path, finished=["Fine"])
    assert "1 not finished (status 'bad')" in found


def test_a_truth_value_may_be_the_good_state(tmp_path):
    content = changed("done", "False", "False")
    found = said(content, tmp_path, finished=["false"])
    assert "8 counted" in found


@cases("lab/judging/cases.toml", "unreadable")
def test_a_file_that_cannot_be_read_is_one_line(case, tmp_path):
    name = case["name"]
    file = tmp_path / name
    if "content" in case:
        content = case["content"].encode("latin-1")
        put(file, content * case.get("times", 1))
    with raises_user_error(case["says"], name):
        read_results(file)


def test_damage_that_makes_polars_panic_is_an_error_too(tmp_path, capfd):
    content = written(pl.DataFrame(OBJECTS).write_ipc)
    errors = 0
    # One bit of each byte after the first 300.
    for place in range(300, len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 16
        try:
            read_results(put(tmp_path / "r.feather", bytes(damaged)))
        except UserError as error:
            errors += "it is damaged" in str(error)
    assert errors
    assert capfd.readouterr().err == ""


@pytest.fixture
def experiment(tmp_path):
    """A folder of Ray Tune whose last trial failed."""
    tune(tmp_path, last="ERROR")
    return tmp_path


def test_a_trial_that_failed_does_not_count(experiment):
    assert "2 not finished (status 'ERROR')" in heading(experiment, by="config.variant")


def test_a_result_grid_is_read_from_its_folder(experiment):
    grid = SimpleNamespace(experiment_path=str(experiment))
    assert "2 not finished (status 'ERROR')" in heading(grid, by="config.variant")


def test_damaged_states_of_trials_are_an_error(experiment):
    put(experiment / "experiment_state-1.json", '{"trial_data": {"a": 1}}')
    with pytest.raises(UserError, match="has no states of trials"):
        heading(experiment, by="config.variant")


def test_without_states_of_trials_their_errors_say_which_failed(experiment):
    (experiment / "experiment_state-1.json").unlink()
    (last,) = experiment.glob("*seed=3,variant=cand*")
    put(last / "error.txt", "killed")
    assert "2 not finished (error.txt)" in heading(experiment, by="config.variant")


def test_files_that_are_not_read_are_said(experiment):
    put(experiment / "more/progress.csv", "loss\n1\n")
    put(experiment / "board/events.out.tfevents.1", "")
    found = heading(experiment, by="config.variant")
    assert "not read: 1 event file, 1 progress.csv" in found


def test_a_run_that_ended_early_is_judged_by_its_last_value(tmp_path):
    boards(tmp_path, last=2)
    found = heading(tmp_path, parse=NAMED, reference="base")
    assert "step 2, judged by their last value: variant 'cand', seed 3 (at 1)" in found


def test_a_damaged_metric_of_mlflow_is_an_error(tmp_path):
    mlflow(tmp_path)
    put(tmp_path / "0" / mlflow_id(0) / "metrics/loss", "x")
    with pytest.raises(UserError, match=r"0/0+ has a damaged file: .*; delete it"):
        heading(tmp_path)


def test_a_run_of_mlflow_without_its_facts_is_not_finished(tmp_path):
    mlflow(tmp_path)
    (tmp_path / "0" / mlflow_id(7) / "meta.yaml").unlink()
    assert "1 not finished (status '')" in heading(tmp_path)


def test_settings_without_a_result_are_a_missing_run(tmp_path):
    write_folder(tmp_path, "Hydra")
    (tmp_path / "7/results.json").unlink()
    assert "8 rows read: 6 counted" in heading(tmp_path, by="model.variant")


def test_a_log_of_wandb_without_its_end_is_of_a_run_that_is_not_finished(tmp_path):
    wandb(tmp_path, last=2)
    assert "1 not finished (state 'running')" in heading(tmp_path, by="config.variant")


def test_the_direction_of_a_study_of_optuna_cannot_be_contradicted(tmp_path):
    optuna(journal(tmp_path / "o"))
    with pytest.raises(UserError, match="contradicts the study, which minimises value"):
        heading(tmp_path / "o", metric="value", higher_is_better=True)


def test_a_study_of_optuna_knows_its_direction(tmp_path):
    optuna(journal(tmp_path / "o"), "maximize")
    found = heading(tmp_path / "o", metric="value")
    assert "1 worse" in found
    assert "value, higher is better" in found


def cells(frame: pl.DataFrame, names: Any) -> list[list[str]]:
    """Return the rows of some columns, "" for no value."""
    texts = frame.select(names).fill_null("")
    return list(map(list, texts.rows()))


@cases("lab/judging/cases.toml", "mlflow")
def test_a_storage_of_mlflow_holds_its_runs_and_says_which_are_deleted(case, tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as db:
        db.executescript(case["script"])
    found = read_results(tmp_path).frame
    names, *expected = case["runs"]
    assert cells(found, names) == expected
    settings, *expected = case["settings"]
    assert cells(found, settings) == expected


def test_a_database_whose_writer_was_killed_is_refused_in_one_line(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (1); PRAGMA cache_size=1;")
        # A cache of one page: what is inserted goes to the file at once.
        db.execute("INSERT INTO t SELECT zeroblob(9000) FROM t")
        db.executemany("INSERT INTO t VALUES (?)", [(bytes(9000),)] * 99)
        # As they are while the writer is in a transaction.
        shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
        shutil.copy(tmp_path / "a.db-journal", tmp_path / "b.db-journal")
    with pytest.raises(UserError, match="open it once with the program that wrote it"):
        read_results(tmp_path / "b.db")


@pytest.mark.parametrize("name", ["o.db", "a%20b?c#d.db"])
def test_a_storage_of_optuna_holds_values_settings_and_states(name, tmp_path):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = database(tmp_path / "plain.db")
    both = ["minimize"] * 2
    study = optuna.create_study(storage=storage, study_name="s", directions=both)
    of = optuna.distributions
    trial = optuna.create_trial(
        values=[math.inf, 1.25],
        params={"rate": 0.25, "kind": "b"},
        distributions={
            "rate": of.FloatDistribution(0, 1),
            "kind": of.CategoricalDistribution("ab"),
        },
    )
    study.add_trial(trial)
    failed = study.ask()
    study.tell(failed, state=optuna.trial.TrialState.FAIL)
    file = shutil.move(tmp_path / "plain.db", tmp_path / name)
    expected = frame_of(rows("lab/judging/cases.toml", "optuna"))
    found = read_results(file).frame
    assert found.select(expected.columns).equals(expected)


def test_a_parameter_of_epochs_orders_no_trials(tmp_path):
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(storage=journal(tmp_path / "o"))
    of = optuna.distributions
    space = {"arm": of.CategoricalDistribution("ab"), "epochs": of.IntDistribution(0, 9)}
    for arm, epochs in itertools.product("ab", range(3)):
        params = {"arm": arm, "epochs": epochs}
        value = epochs + float(arm == "b")
        trial = optuna.create_trial(params=params, distributions=space, value=value)
        study.add_trial(trial)
    assert "6 rows read: 6 counted" in heading(tmp_path / "o", by="arm", metric="value")


@cases("lab/judging/cases.toml", "files")
def test_a_file_has_the_rows_of_its_runs(case, tmp_path):
    file = put(tmp_path / case["name"], case["content"])
    columns = read_results(file).frame.to_dict(as_series=False)
    assert json.dumps(columns) == case["columns"]


def test_a_history_beside_a_result_is_no_run(tmp_path):
    write_folder(tmp_path, "a history and a result")
    found = heading(tmp_path)
    assert "rows of one run that have one value count once: variant 'base'" in found


def test_settings_of_epochs_are_no_history(tmp_path):
    for number, (variant, seed, loss) in enumerate(RUNS):
        put_json(tmp_path / f"{number}/r.json", {"loss": loss})
        put_json(tmp_path / f"{number}/config.json", {"v": variant, "epochs": seed})
    found = heading(tmp_path, by="config.v")
    assert "is config.epochs a seed (--seed)" in found
    assert "8 rows read: 8 counted" in found


def test_a_mean_beside_the_files_of_seeds_is_no_run(tmp_path):
    for variant, seed, loss in RUNS:
        put_json(tmp_path / variant / f"seed{seed}.json", {"loss": loss})
    # Far from the losses of the seeds.
    put_json(tmp_path / "base/mean.json", {"loss": 0.1})
    found = heading(tmp_path, by="part1")
    assert "9 rows read: 8 counted, 1 means and other summaries" in found


def test_a_monitor_of_episodes_is_a_run_and_truth_values_are_shares(tmp_path):
    lines = ['#{"t_start": 1.5}', "r,l,why,success"]
    lines += ["9.0,1,late,False"] * 7
    lines += ["2.0,3,early,True"] * 100
    file = put(tmp_path / "monitor.csv", "\n".join(lines) + "\n")
    found = read_results(file)
    (run,) = found.frame.to_dicts()
    assert run == {"r": 2.0, "l": 3.0, "why": None, "success": 1.0}
    assert found.notes == ["a monitor is a run: means of its last 100 episodes"]


@pytest.fixture
def with_settings(tmp_path):
    """Return a function that writes a folder whose last run has other settings of its model."""

    def write(model):
        write_folder(tmp_path, "Hydra")
        text = f"a: &x {{b: cand, variant: cand}}\nmodel: {model}\nseed: 3\n"
        put(tmp_path / "7/.hydra/config.yaml", text)
        return tmp_path

    return write


MERGED = "{<<: *x, c: '${no}'}"


@pytest.mark.parametrize("model", ["{variant: cand, o: [1]}", "{variant: '${a.b}'}", MERGED])
def test_settings_of_yaml_are_read_and_resolved(model, with_settings):
    found = heading(with_settings(model), by="model.variant")
    assert "8 rows read: 8 counted" in found


def test_a_setting_whose_value_is_elsewhere_is_refused(with_settings):
    with pytest.raises(UserError, match=r"model.c is '\$\{no\}', whose value is not in its file"):
        heading(with_settings(MERGED), by="model.c")


@pytest.fixture
def pandas_frame():
    """A frame of pandas, with columns that have no number."""
    pandas = pytest.importorskip("pandas")
    kinds = {"loss": object, "variant": "category"}
    frame = pandas.DataFrame(OBJECTS).astype(kinds)
    frame["end"] = pandas.NaT
    frame["time"] = pandas.Timedelta(1)
    return frame


@pytest.mark.parametrize("nothing", ["nan", "NA"])
def test_pandas_frames_are_judged_too(pandas_frame, nothing):
    pandas = pytest.importorskip("pandas")
    frame = pandas_frame
    if nothing == "nan":
        frame.loc[0, "loss"] = math.nan
    else:
        frame.loc[0, "loss"] = pandas.NA
    found = lmzoo.judge(frame, by="variant", metric="loss")
    base = found.filter(variant="base")
    assert base["missing"].item() == 1


def one_of_mlflow(run, settings, metric, value):
    put(run / "0/r/meta.yaml", "run_name: r\nstatus: 3\n")
    for name, setting in settings.items():
        put(run / "0/r/params" / name, str(setting))
    put(run / "0/r/metrics" / metric, f"1 {value} 9")


def one_of_tune(run, settings, metric, value):
    put_json(run / "r/result.json", {"training_iteration": 1, metric: value})
    put_json(run / "r/params.json", settings)


def one_of_hydra(run, settings, metric, value):
    put_json(run / "r/results.json", {metric: value})
    put_json(run / "r/.hydra/config.yaml", settings)


def one_in_a_folder(run, settings, metric, value):
    parts = [f"{key}={setting}" for key, setting in settings.items()]
    put_json(run / ",".join(parts) / "r.json", {metric: value})


FEW_RUNS = [run for run in RUNS if run[1] < 2]


def column_of(frame: pl.DataFrame, values: list[Any]) -> str:
    """Return the last column that has these values."""
    texts = list(map(str, values))
    found = ""
    for name in frame.columns:
        if frame[name].to_list() == texts:
            found = name
    return found


@pytest.mark.parametrize("write", [one_of_mlflow, one_of_tune, one_of_hydra, one_in_a_folder])
@pytest.mark.parametrize("place", ["variant", "seed", "metric", "label"])
@pytest.mark.parametrize("word", rows("lab/judging/cases.toml", "reserved"))
def test_a_name_of_ours_is_a_name_like_any_other_in_a_file(write, place, word, tmp_path):
    if write is one_in_a_folder:
        word, _, _ = word.partition(" ")  # no setting in a path has a blank
    names = {"variant": "arm", "seed": "draw", "metric": "nll", "label": "base"}
    names[place] = word
    labels = {"base": names["label"], "cand": "cand"}
    variants = []
    for number, (variant, seed, loss) in enumerate(FEW_RUNS):
        label = labels[variant]
        variants.append(label)
        settings = {names["variant"]: label, names["seed"]: seed}
        write(tmp_path / str(number), settings, names["metric"], loss)
    frame = read_results(tmp_path).frame
    _, seeds, losses = zip(*FEW_RUNS, strict=True)
    table = lmzoo.judge(
        tmp_path,
        by=column_of(frame, variants),
        seed=column_of(frame, seeds),
        metric=column_of(frame, losses),
        higher_is_better=False,
    )
    means = dict(table.select("variant", "mean").iter_rows())
    expected = {labels["base"]: 1.9055, "cand": 1.8055}
    assert means == pytest.approx(expected)
