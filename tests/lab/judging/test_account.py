"""The account: every row that is read has a place, and what a source knows is not lost."""

import csv
import gzip
import io
import json
import lzma
import math
import re
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.account import COUNTED, DIVERGED, NO_PAIR, Question, account
from lmzoo.lab.judging.verdicts import judgement

RUNS = [
    (variant, seed, round(loss + 0.01 * seed + 0.001 * (seed % 2), 4))
    for variant, loss in (("base", 1.9), ("cand", 1.8))
    for seed in range(4)
]
NAMED = r"(?P<variant>[a-z]+)-s(?P<seed>\d+)"


def table(rows: Any = RUNS, head: str = "variant,seed,loss", sep: str = ",") -> str:
    return "\n".join(sep.join(map(str, row)) for row in (head.split(","), *rows)) + "\n"


def objects() -> list[dict[str, Any]]:
    return [dict(zip(("variant", "seed", "loss"), run, strict=True)) for run in RUNS]


def with_last(column: str, good: str, bad: str) -> str:
    """Return the table with a column, whose value is `bad` for the last run of the candidate."""
    return table(
        [(*run, bad if run is RUNS[-1] else good) for run in RUNS], f"variant,seed,loss,{column}"
    )


def said(content: str | bytes, folder: Path, name: str = "r.csv", **question: Any) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return heading(path, **question)


def heading(path: Any, **question: Any) -> str:
    report = judgement(path, Question(**{"by": "variant", "metric": "loss", **question}))
    return "\n".join(report.heading)


FORMS: dict[str, tuple[str, str | bytes]] = {
    "comments above the header": ("r.csv", "# by a tool\n# lr=1,b=2\n" + table()),
    "a header in a comment": ("r.csv", "# " + table()),
    "a line of Excel": ("r.csv", "sep=;\n" + table(sep=";")),
    "decimal commas": ("r.csv", table(sep=";").replace(".", ",")),
    "UTF-16": ("r.txt", table(sep="\t").encode("utf-16")),
    "aligned by blanks": ("r.txt", table(sep="   ")),
    "trailing commas": ("r.csv", table().replace("\n", ",\n")),
    "line ends of Macs": ("r.csv", table().replace("\n", "\r")),
    "gzip": ("r.csv.gz", gzip.compress(table().encode())),
    "xz of JSON lines": ("r.xz", lzma.compress("\n".join(map(json.dumps, objects())).encode())),
    "pandas, split": ("r.json", json.dumps({"columns": ["variant", "seed", "loss"], "data": RUNS})),
    "pandas, columns": ("r.json", json.dumps(
        {k: {str(i): row[k] for i, row in enumerate(objects())} for k in objects()[0]}
    )),
    "an object of runs": ("r.json", json.dumps({f"r{i}": row for i, row in enumerate(objects())})),
    "a table of pandas": ("r.json", json.dumps({"schema": {}, "data": objects()})),
    "an unknown suffix": ("r.results", table()),
    "seeds of pandas": ("r.csv", table([(v, f"{s}.0"[: 3 - 2 * (s % 2)], x) for v, s, x in RUNS])),
    "a seed by another name": ("r.csv", table(head="variant,Random_Seed,loss")),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_table_are_read_as_the_table(form: str, tmp_path: Path) -> None:
    found = said(FORMS[form][1], tmp_path, FORMS[form][0])
    assert "1 better\n8 rows read: 8 counted\n" in found
    assert "paired by" in found


@pytest.mark.parametrize(
    ("column", "good", "bad", "reason"),
    [
        ("status", "keep", "crash", "not finished (status 'crash')"),
        ("State", "COMPLETED", "CANCELLED by 7", "not finished (State 'CANCELLED by 7')"),
        ("status", "TERMINATED", "ERROR", "not finished (status 'ERROR')"),
        ("run.state", "finished", "", "not finished (run.state '')"),
        ("state", "TrialState.COMPLETE", "State.FAIL", "not finished (state 'State.FAIL')"),
        ("ExitCode", "0:0", "0:9", "not finished (ExitCode '0:9')"),
        ("returncode", "0", "137", "not finished (returncode '137')"),
        ("lifecycle_stage", "active", "deleted", "deleted"),
        ("archived", "False", "True", "not finished (archived 'True')"),
    ],
)  # fmt: skip
def test_a_run_counts_only_in_a_known_good_state(
    column: str, good: str, bad: str, reason: str, tmp_path: Path
) -> None:
    found = said(with_last(column, good, bad), tmp_path)
    assert f"8 rows read: 6 counted, 1 {reason}, 1 without a pair" in found


def test_a_state_of_ones_own_is_named_or_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no row has finished.*'fine'.*--finished"):
        said(with_last("status", "fine", "fine"), tmp_path)
    found = said(with_last("status", "fine", "bad"), tmp_path, finished=["Fine"])
    assert "1 not finished (status 'bad')" in found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (table() + "cand,9,1.2,7\n", "line 10 has 4 cells, the header has 3: 'cand,9,1.2,7'"),
        (table() + '"cand,9,1.2\nx,1,2\n', "line 10: unexpected end of data: '\"cand,9"),
        (table([(*r, 1) for r in RUNS], "variant,seed,loss, loss"), "two columns are named 'loss'"),
        (table([*RUNS, ("cand", "1.0", 2)]), "two rows have variant 'cand', seed 1"),
        (table([*RUNS, (" cand", "1", 2)]), "two rows have variant 'cand', seed 1"),
        (table([(*r, *r) for r in RUNS], "variant,a_seed,loss,x,b_seed,y"), "a_seed or b_seed?"),
        (table([(r[0], e, r[2]) for r in RUNS for e in (1, 2)], "variant,epoch,loss"), "epoch 1, "),
        (table([(*r, e) for r in RUNS for e in range(3)], "variant,run,loss,x"), "two rows have"),
        (table([(*r, e) for r in RUNS for e in (0, 1)], "variant,seed,loss,epoch"), "--step epoch"),
        ("variant,seed,loss\nb\xe4se,1,2\n".encode("latin-1"), "line 2 is not UTF-8"),
        (b"PK\x03\x04", "save the table as CSV"),
        ('[{"a": 1, "a": 2}]', "has the key 'a' twice"),
        ('{"columns": ["a", "b"], "data": [[1]]}', "do not fit"),
    ],
    ids=range(13),
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused_in_one_line(
    content: str | bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        said(content, tmp_path, "r" if content[:1] in ("[", "{") else "r.csv")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_names_that_look_alike_are_said(tmp_path: Path) -> None:
    rows = [(v + " " * (s > 1), s, x) for v, s, x in RUNS]
    found = said(table(rows), tmp_path)
    assert "1 contrast with 'base'" in found
    assert "differ by blanks only, and are one: 'base' and 'base '" in found
    rows = [({"base": "1.1", "cand": "1.10"}[v], s, x) for v, s, x in RUNS]
    assert "'1.1' and '1.10' are two; are they one?" in said(table(rows), tmp_path)
    assert "seeds written in several ways are one: '1' and '01'" in said(
        table([(v, f"0{s}" if v == "cand" else s, x) for v, s, x in RUNS if s]), tmp_path
    )


def test_runs_without_a_pair_are_in_no_number(tmp_path: Path) -> None:
    more = [("cand", 10 + s, 3.0 + s) for s in range(4)]
    found = said(table([*RUNS, *more]), tmp_path)
    assert "12 rows read: 8 counted, 4 without a pair" in found
    assert "cand: 4 of 8 without a pair" in found
    frame = judgement(tmp_path / "r.csv", Question(by="variant", metric="loss")).frame
    assert frame["rank"].to_list() == [1, 2]
    assert frame["variant"].to_list() == ["cand", "base"]


def test_the_last_row_that_has_the_metric_counts(tmp_path: Path) -> None:
    rows = []
    for v, s, x in RUNS:
        rows += [(v, s, 1, x + 1), (v, s, 2, x), (v, s, 3, "")]
    rows[-2:] = []  # the last run ends early
    found = said(table(rows, "variant,seed,step,loss"), tmp_path, step="step")
    assert "22 rows read: 8 counted, 14 other rows of runs" in found
    assert (
        "ended before step 2, and their last value counts: variant 'cand', seed 3 (at 1)" in found
    )
    rows += [("base", 0, 2, 1.5)]
    found = said(table(rows, "variant,seed,step,loss"), tmp_path, step="step")
    assert "several values at the last step; the last row counts: variant 'base', seed 0" in found


def write_lightning(path: Path) -> None:
    for i, (v, s, x) in enumerate(RUNS):
        run = path / f"version_{i}"
        run.mkdir(parents=True)
        (run / "metrics.csv").write_text(
            f"epoch,step,train,loss\n0,9,3,\n0,9,,{x + 1}\n1,19,,{x}\n1,29,1,\n"
        )
        (run / "hparams.yaml").write_text(f"variant: {v}\nseed: {s}\n")


def write_hugging_face(path: Path) -> None:
    for v, s, x in RUNS:
        log = [{"step": 1, "loss": x + 1}, {"step": 2, "loss": x}, {"step": 2, "train_runtime": 9}]
        for place, length in ((".", 3), ("checkpoint-1", 1)):
            run = path / f"{v}-s{s}" / place
            run.mkdir(parents=True, exist_ok=True)
            (run / "trainer_state.json").write_text(json.dumps({"log_history": log[:length]}))


def write_tune(path: Path) -> None:
    trials = []
    for i, (v, s, x) in enumerate(RUNS):
        run = path / f"train_ab_{i:05}_{i}_seed={s},variant={v}_2026"
        run.mkdir(parents=True)
        rows = [
            {"trial_id": f"ab_{i:05}", "training_iteration": k, "loss": x + 2 - k} for k in (1, 2)
        ]
        (run / "result.json").write_text("\n".join(map(json.dumps, rows)) + "\n")
        (run / "params.json").write_text(json.dumps({"variant": v, "seed": s}))
        trials.append([json.dumps({"trial_id": f"ab_{i:05}", "status": "TERMINATED"}), "{}"])
    (path / "experiment_state-1.json").write_text(json.dumps({"trial_data": trials}))


def write_partitions(path: Path) -> None:
    for v, s, x in RUNS:
        run = path / f"variant={v}" / f"seed={s}"
        run.mkdir(parents=True)
        pl.DataFrame({"loss": [x]}).write_parquet(run / "part-0.parquet")


def write_keras(path: Path) -> None:
    tensorboard = pytest.importorskip("tensorboard.compat.proto")
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    assert tensorboard
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


def write_journal(path: Path, direction: str = "minimize") -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.create_study(storage=storage, direction=direction)
    choice = {"variant": optuna.distributions.CategoricalDistribution(["base", "cand"])}
    for v, s, x in RUNS:
        study.add_trial(
            optuna.create_trial(
                params={"variant": v}, distributions=choice, user_attrs={"seed": s}, value=x
            )
        )


def write_graph_of_wandb(path: Path) -> None:
    nodes = [
        {"node": {
            "state": "finished", "summaryMetrics": json.dumps({"loss": x}),
            "config": json.dumps({"variant": {"value": v}, "seed": {"value": s, "desc": None}}),
        }}
        for v, s, x in RUNS
    ]  # fmt: skip
    path.write_text(json.dumps({"data": {"project": {"runs": {"edges": nodes}}}}))


SOURCES: dict[str, tuple[Callable[[Path], None], dict[str, Any], str]] = {
    "Lightning": (write_lightning, {}, "32 rows read: 8 counted, 24 other"),
    "Hugging Face": (write_hugging_face, {"parse": NAMED}, "32 rows read: 8 counted, 24 other"),
    "Ray Tune": (write_tune, {"by": "config.variant"}, "16 rows read: 8 counted, 8 other"),
    "parts of Parquet": (write_partitions, {}, "8 rows read: 8 counted"),
    "Keras": (write_keras, {"parse": NAMED, "reference": "base"}, "8 rows read: 8 counted"),
    "journal of Optuna": (write_journal, {"metric": "value"}, "8 rows read: 8 counted"),
    "runs of W&B": (
        write_graph_of_wandb,
        {"by": "config.variant", "metric": "summaryMetrics.loss"},
        "8 rows read: 8 counted",
    ),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_sources_have_the_same_verdict(kind: str, tmp_path: Path) -> None:
    write, question, counts = SOURCES[kind]
    write(tmp_path / "results")
    found = heading(tmp_path / "results", **question)
    assert "1 better" in found
    assert counts in found
    assert "paired by" in found


def test_what_a_source_knows_of_a_run_counts(tmp_path: Path) -> None:
    write_tune(tmp_path / "t")
    state = tmp_path / "t" / "experiment_state-1.json"
    last = state.read_text().rpartition("TERMINATED")
    state.write_text(f"{last[0]}ERROR{last[2]}")
    found = heading(tmp_path / "t", by="config.variant")
    assert "2 not finished (status 'ERROR')" in found
    write_keras(tmp_path / "k")
    events = next((tmp_path / "k" / "cand-s3").glob("*/*"))
    events.write_bytes(events.read_bytes()[:-7])
    found = heading(tmp_path / "k", parse=NAMED, reference="base")
    assert "1 torn (not written to its end)" in found
    write_journal(tmp_path / "o")
    with pytest.raises(UserError, match="contradicts the study, which minimises value"):
        heading(tmp_path / "o", metric="value", higher_is_better=True)
    write_journal(tmp_path / "m", "maximize")
    found = heading(tmp_path / "m", metric="value")
    assert "1 worse" in found
    assert "value, higher is better" in found


def write_temporary(text: str) -> Path:
    with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False, newline="") as file:
        file.write(text)
    return Path(file.name)


CELLS = st.one_of(
    st.sampled_from(["", " ", "base", "cand", "base ", "0", "1", "1.0", "01", "2", "nan", "inf"]),
    st.sampled_from(["crash", "finished", "1.85", "-3", "1e999", "1,5", '"', "#", "\t", "é"]),
    st.text(max_size=3),
)


@given(st.data())
@settings(max_examples=500, deadline=None)
def test_the_account_adds_up_or_the_table_is_refused(data: Any) -> None:
    head = ["variant", "seed", "step", "loss", "status"]
    rows = [[v, s, k, x + 2 - k, "finished"] for v, s, x in RUNS for k in (1, 2)]
    for _ in range(data.draw(st.integers(0, 8))):
        row = data.draw(st.integers(0, len(rows) - 1))
        kind = data.draw(
            st.sampled_from(["cell", "cell", "cell", "drop", "twice", "short", "blank"])
        )
        if kind == "cell":
            rows[row] = [*rows[row], *[""] * 5][:5]
            rows[row][data.draw(st.integers(0, 4))] = data.draw(CELLS)
        elif kind == "drop" and len(rows) > 1:
            rows.pop(row)
        elif kind == "twice":
            rows.append(list(rows[row]))
        elif kind == "short":
            rows[row] = rows[row][: data.draw(st.integers(1, 5))]
        else:
            rows[row] = [""] * 5
    text = io.StringIO()
    csv.writer(text).writerows([head, *rows])
    question = Question(by="variant", metric="loss", step="step", seed="seed")
    frame_rows = [dict(zip(head, [*row, *[None] * 5], strict=False)) for row in rows]
    for source in (write_temporary(text.getvalue()), frame_rows):
        try:
            found = account(source, question)
            report = judgement(source, question)
        except UserError:
            continue
        finally:
            if isinstance(source, Path):
                source.unlink()
        read, *numbers = map(int, re.findall(r"(?:^|, |: )(\d+) (?!of)", report.heading[1]))
        assert read == len(rows) == len(found.rows)
        assert sum(numbers) == read, report.heading[1]
        counts = dict(found.rows["why"].value_counts().iter_rows())
        seeds = report.frame["seeds"].sum()
        lone = report.frame["without_pair"].sum()
        assert seeds + lone == counts.get(COUNTED, 0) + counts.get(DIVERGED, 0)
        assert f"{lone} {NO_PAIR}" in report.heading[1] or not lone
        assert all(math.isfinite(x) for x in report.frame["mean"].drop_nulls())
