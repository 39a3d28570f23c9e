"""Verdicts on results of other programs: readers, the choice of the pairs, words and errors."""

import json
import math
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import lmzoo
from lmzoo.base.errors import UserError
from lmzoo.lab.judging.account import Question
from lmzoo.lab.judging.sources import read_results as read_source
from lmzoo.lab.judging.texts import frame_of
from lmzoo.lab.judging.verdicts import judgement


def read_results(path: Any) -> pl.DataFrame:
    return read_source(path).frame


EXAMPLE = Path("docs/assets/judge/results.csv")
ROWS = pl.read_csv(EXAMPLE).to_dicts()
OPTIONS: dict[str, Any] = {"by": "variant", "seed": "seed", "metric": "loss", "margin": 0.02}
VERDICTS = {"base": None, "wider": "better", "no_gate": "worse", "new_init": "negligible"}


def write_csv(path: Path, separator: str) -> Path:
    path.write_text("\ufeff" + pl.DataFrame(ROWS).write_csv(separator=separator))
    return path


def write_json_lines(path: Path) -> Path:
    rows = [{**row, "note": "a\u2028b"} for row in ROWS]  # a line end in a text is none of the file
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    return path


def write_json(path: Path) -> Path:
    path.write_text(json.dumps(ROWS))
    return path


def write_parquet(path: Path) -> Path:
    pl.DataFrame(ROWS).write_parquet(path)
    return path


def write_wandb_chart(path: Path) -> Path:
    names = [f"{row['variant']}-s{row['seed']} - loss" for row in ROWS]
    header = [name + end for name in names for end in ("", "__MIN", "__MAX")]
    lines = [["Step", *header], ["0", *["9"] * len(header)]]
    lines.append(["1", *(str(row["loss"]) for row in ROWS for _ in range(3))])
    path.write_text("\n".join(",".join(f'"{cell}"' for cell in line) for line in lines))
    return path


def write_mlruns(folder: Path) -> Path:
    for i, row in enumerate(ROWS):
        run = folder / "0" / f"{(7 * i) % 31:032x}"
        for kind in ("params", "metrics", "tags"):
            (run / kind).mkdir(parents=True)
        (run / "meta.yaml").write_text(f"run_name: r{i}\nstart_time: {i}\nstatus: 3\n")
        (run / "params" / "variant").write_text(row["variant"])
        (run / "params" / "seed").write_text(str(row["seed"]))
        (run / "metrics" / "loss").write_text(f"1 {row['loss']} 9\n2 9.0 1\n")
    return folder


def write_optuna(path: Path) -> Path:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=f"sqlite:///{path}")
    variants = optuna.distributions.CategoricalDistribution(list(VERDICTS))
    for row in ROWS:
        study.add_trial(
            optuna.trial.create_trial(
                params={"variant": row["variant"]},
                distributions={"variant": variants},
                user_attrs={"seed": row["seed"]},
                value=row["loss"],
            )
        )
    return path


def write_boards(folder: Path) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    for row in ROWS:
        with SummaryWriter(folder / row["variant"] / str(row["seed"])) as board:
            board.add_scalar("loss", 9.0, 0)
            board.add_scalar("loss", 8.0, 1)
            board.add_scalar("loss", row["loss"], 2)
    return folder


READERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "csv": (lambda path: write_csv(path / "r.csv", ","), {}),
    "tsv": (lambda path: write_csv(path / "r.tsv", "\t"), {}),
    "semicolons": (lambda path: write_csv(path / "r.csv", ";"), {}),
    "json lines": (lambda path: write_json_lines(path / "r.jsonl"), {}),
    "json": (lambda path: write_json(path / "r.json"), {}),
    "parquet": (lambda path: write_parquet(path / "r.parquet"), {}),
    "wandb chart": (
        lambda path: write_wandb_chart(path / "chart.csv"),
        {"parse": r"(?P<variant>.+)-s(?P<seed>\d+)"},
    ),
    "mlflow": (lambda path: write_mlruns(path / "mlruns"), {}),
    "optuna": (lambda path: write_optuna(path / "o.db"), {"metric": "value"}),
    "tensorboard": (
        lambda path: write_boards(path / "tb"),
        {"parse": r"(?P<variant>.+)/(?P<seed>\d+)", "reference": "base"},
    ),
}


@pytest.mark.parametrize("kind", READERS)
def test_every_source_of_the_same_runs_has_the_same_verdicts(kind: str, tmp_path: Path) -> None:
    write, options = READERS[kind]
    table = lmzoo.judge(write(tmp_path), **{**OPTIONS, **options})
    assert dict(table.select("variant", "verdict").iter_rows()) == VERDICTS
    assert table["paired"].all()
    direct = lmzoo.judge(ROWS, **OPTIONS).sort("variant")
    np.testing.assert_allclose(table.sort("variant")["mean"], direct["mean"], rtol=1e-6)


@given(st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=6), min_size=2, max_size=5))
@settings(max_examples=40)
def test_a_higher_metric_is_the_mirror_of_a_lower_one(losses: list[list[float]]) -> None:
    rows = [{"v": i, "x": x, "y": -x} for i, own in enumerate(losses) for x in own]
    low = lmzoo.judge(rows, by="v", metric="x", margin=0.5).sort("variant")
    high = lmzoo.judge(rows, by="v", metric="y", margin=0.5, higher_is_better=True).sort("variant")
    assert low["verdict"].equals(high["verdict"])
    np.testing.assert_allclose(low["difference"], -high["difference"].cast(pl.Float64))
    ends = low.select("difference_low", "difference_high").fill_null(math.nan).to_numpy()
    mirrored = high.select("difference_high", "difference_low").fill_null(math.nan).to_numpy()
    np.testing.assert_allclose(ends, -mirrored)


def test_the_records_of_the_speedrun_are_judged_as_by_scipy_and_as_the_page_says() -> None:
    path, margin = EXAMPLE.with_name("speedrun_track3.csv"), 0.0016
    options: dict[str, Any] = {"by": "record", "seed": "run", "metric": "loss"}
    table = lmzoo.judge(path, margin=margin, within="comparison", paired=False, **options)
    page, said = Path("docs/how/judge.md").read_text(), []
    for row in table.drop_nulls("verdict").iter_rows(named=True):
        runs = pl.read_csv(path).filter(pl.col("comparison") == row["table"])
        new, old = (
            runs.filter(pl.col("record").cast(pl.String) == row[side])["loss"].to_numpy()
            for side in ("variant", "against")
        )
        test = stats.ttest_ind(new, old, equal_var=False)
        low, high = test.confidence_interval(0.95)
        shown = [row[key] for key in ("difference", "difference_low", "difference_high", "p")]
        assert shown == pytest.approx([new.mean() - old.mean(), low, high, test.pvalue], rel=1e-6)
        above = stats.ttest_ind(new + margin, old, equal_var=False, alternative="greater")
        below = stats.ttest_ind(new - margin, old, equal_var=False, alternative="less")
        if max(above.pvalue, below.pvalue) < 0.05:
            word = "negligible"
        else:
            word = "better" if high < -margin else "better-open" if high < 0 else "undecided"
        assert row["verdict"] == word
        numbers = " | ".join((f"{shown[0]:+.4f}", f"{low:+.4f} to {high:+.4f}")).replace("-", "−")
        name = {"better-open": "better (size open)"}.get(word, word)
        assert f"| #{row['variant']} | #{row['against']} | {name} | {numbers} |" in page
        said.append(word)
    assert sorted(said) == ["better"] * 4 + ["better-open"] * 4 + ["negligible"] * 2


def test_seeds_decide_whether_runs_are_paired() -> None:
    other = [{**row, "seed": f"{row['variant']} {row['seed']}"} for row in ROWS]
    by_seed, apart = judgement(ROWS, Question(**OPTIONS)), judgement(other, Question(**OPTIONS))
    assert by_seed.frame["paired"].all()
    assert not apart.frame["paired"].any()
    assert any(line.startswith("paired by seed") for line in by_seed.heading)
    assert any(line.startswith("unpaired") for line in apart.heading)
    # The part that the runs of a seed share cancels only in pairs.
    widths = [
        (f["difference_high"] - f["difference_low"]).drop_nulls().max()
        for f in (by_seed.frame, apart.frame)
    ]
    assert widths[0] < widths[1] / 1.5


def test_successive_variants_are_each_compared_with_the_one_before() -> None:
    table = lmzoo.judge(ROWS, **OPTIONS, successive=True)
    assert table["against"].to_list() == [None, "base", "wider", "no_gate"]
    for row in table.drop_nulls("against").to_dicts():
        pair = [r for r in ROWS if r["variant"] in (row["variant"], row["against"])]
        alone = lmzoo.judge(pair, **OPTIONS, reference=row["against"])
        expected = alone.filter(variant=row["variant"])["difference"].item()
        assert row["difference"] == pytest.approx(expected)


def test_each_table_is_judged_by_itself() -> None:
    both = [{**row, "data": "a"} for row in ROWS] + [
        {**row, "data": "b", "loss": -row["loss"]} for row in ROWS
    ]
    table = lmzoo.judge(both, **OPTIONS, within="data")
    for name, rows in (("a", both[: len(ROWS)]), ("b", both[len(ROWS) :])):
        part = table.filter(table=name).drop("table")
        assert part.equals(lmzoo.judge(rows, **OPTIONS).drop("table"))


def test_missing_and_diverged_runs_are_said_and_are_in_no_mean(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    lines = EXAMPLE.read_text().splitlines()
    lines[7] = "wider,1,nan,0.7"
    lines[8] = "wider,2,inf,0.7"
    lines[9] = "wider,3,,0.7"
    path.write_text("\n".join(lines))
    report = judgement(path, Question(**OPTIONS))
    row = report.frame.filter(variant="wider").row(0, named=True)
    assert (row["seeds"], row["missing"], row["diverged"]) == (5, 1, 2)
    assert row["mean"] == pytest.approx(np.mean([r["loss"] for r in ROWS[9:12]]))
    assert row["rank"] == 4
    assert row["verdict"] == "undecided"  # a variant that diverges more often is not called better
    said = next(line for line in report.heading if line.startswith("wider"))
    assert "1 missing" in said
    assert "2 of 5 diverged" in said


def test_a_run_that_crashed_is_missing() -> None:
    rows = [{**row, "State": "crashed" if row["seed"] == 1 else "finished"} for row in ROWS]
    assert lmzoo.judge(rows, **OPTIONS)["missing"].to_list() == [1, 1, 1, 1]


def test_the_last_row_of_each_run_counts() -> None:
    rows = [{**row, "step": k, "loss": row["loss"] + (10 - k)} for row in ROWS for k in (10, 9, 2)]
    with pytest.raises(UserError, match="--step step keeps"):
        lmzoo.judge(rows, **OPTIONS)
    assert lmzoo.judge(rows, **OPTIONS, step="step").equals(lmzoo.judge(ROWS, **OPTIONS))


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS, {"metric": "los"}, "no column 'los'; near: loss"),
        (ROWS, {"by": "varant"}, "no column 'varant'; near: variant"),
        (ROWS, {"reference": "bas"}, "no variant 'bas'; near: base"),
        (ROWS, {"margin": -1.0}, "margin -1.0"),
        (ROWS, {"margin": math.nan}, "margin nan"),
        ([r for r in ROWS if r["seed"] == 1], {}, "a single seed"),
        ([r for r in ROWS if r["variant"] == "base"], {}, "one variant only"),
        ([{**r, "loss": None} for r in ROWS], {}, "no run has a value of loss"),
        ([*ROWS, {**ROWS[0], "seed": 9, "loss": "1,9"}], {}, "row 25: loss is '1,9'"),
        ([*ROWS, ROWS[3]], {}, "two rows have variant 'base', seed 4"),
        ([*ROWS, {**ROWS[0], "seed": 9, "loss": 1e300}], {}, "not a number up to 1e+100"),
        (ROWS, {"by": ["variant", "loss"]}, "column 'loss' is named twice"),
        (ROWS, {"seed": "variant"}, "column 'variant' is named twice"),
        (ROWS, {"within": "seed"}, "column 'seed' is named twice"),
        (ROWS, {"parse": "(?P<a>x"}, "no column 'run'"),
        ([{**r, "run": "a"} for r in ROWS], {"parse": "(?P<a>x"}, "no regular expression"),
        ([{**r, "run": "a"} for r in ROWS], {"parse": "x"}, "no named group"),
    ],
)
def test_bad_input_is_one_line(rows: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        lmzoo.judge(rows, **{**OPTIONS, **options})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("none.csv", None),
        ("r.xlsx", b"PK"),
        ("r.csv", b""),
        ("r.csv", b"variant,seed,loss\n"),
        ("r.csv", b"a,b\n1,2,3\n"),
        ("r.csv", b"\xff\xfe\x00"),
        ("r.jsonl", b'{"a": 1}\n{"a": \n'),
        ("r.jsonl", b"[1, 2]\n"),
        ("r.json", b"[1, 2]"),
        ("r.json", b"[" * 100_000),
        ("r.parquet", b"PAR1"),
        ("r.db", b"SQLite format 3\0 broken"),
    ],
)
def test_a_damaged_file_is_one_line(name: str, content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        read_results(tmp_path / name)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_storage_of_mlflow_holds_its_runs_and_says_which_are_deleted(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mlflow.db") as db:
        db.execute("CREATE TABLE experiments (experiment_id, lifecycle_stage)")
        db.execute("INSERT INTO experiments VALUES (1, 'active')")
        db.execute("CREATE TABLE runs (run_uuid, name, status, lifecycle_stage, start_time, experiment_id DEFAULT 1)")
        db.execute("CREATE TABLE latest_metrics (run_uuid, key, value, is_nan)")
        runs = [("1", "b", "FINISHED", "active", 2), ("2", "", "FAILED", "active", 1)]
        db.executemany(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, 1)", [*runs, ("3", *runs[0][1:3], "deleted", 0)]
        )
        metrics = [("1", "loss", 0.5, 0), ("2", "loss", 0.0, 1), ("3", "loss", 9.0, 0)]
        db.executemany("INSERT INTO latest_metrics VALUES (?, ?, ?, ?)", metrics)
        for table in ("params", "tags"):
            db.execute(f"CREATE TABLE {table} (run_uuid, key, value)")
            rows = [
                ("1", table, "x"),
                ("2", "both", table),
                ("1", "mlflow.user", "y"),
                ("3", "z", ""),
            ]
            db.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
    db.close()
    expected = [
        {"run": "b", "status": "FINISHED", "lifecycle_stage": "deleted", "z": "", "loss": 9.0},
        {"run": "2", "status": "FAILED", "both": "params", "loss": math.nan},
        {"run": "b", "status": "FINISHED", "loss": 0.5, "params": "x", "tags": "x"},
    ]
    assert read_results(tmp_path).equals(frame_of(expected).select(read_results(tmp_path).columns))


def test_a_storage_of_optuna_holds_values_settings_and_states(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = f"sqlite:///{tmp_path / 'o.db'}"
    study = optuna.create_study(storage=storage, study_name="s", directions=["minimize"] * 2)
    study.enqueue_trial({"kind": "b", "rate": 0.25})
    study.optimize(
        lambda t: (
            math.inf,
            t.suggest_float("rate", 0, 1) + (t.suggest_categorical("kind", "ab") == "b"),
        ),
        n_trials=1,
    )
    study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
    rows = read_results(tmp_path / "o.db").to_dicts()
    shared = {"study": "s", "number": 0, "state": "COMPLETE", "value": math.inf, "value_1": 1.25}
    assert rows[0] == {**shared, "rate": 0.25, "kind": "b"}
    assert [rows[1][name] for name in ("number", "state", "value", "kind")] == [
        1,
        "FAIL",
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("r.json", '{"rows": [{"a": 1}]}', {"a": [1]}),
        ("r.json", '{"data": [{"a": {"b": 2, "c": [3]}}]}', {"a.b": [2], "a.c": ["[3]"]}),
        ("r.json", '{"a": [1, 2], "n": 3}', {"a": [1, 2], "n": [3, 3]}),
        ("r.json", '{"a": 1}', {"a": [1]}),
        ("r.json", '{"a": 1}\n{"a": 2.5}\n', {"a": [1.0, 2.5]}),
        (
            "r.jsonl",
            '{"a": 1}\n\n{"a": "x"}\n{"b": 2}',
            {"a": ["1", "x", None], "b": [None, None, 2]},
        ),
        ("r.txt", " a ;b\n1;2", {"a": ["1"], "b": ["2"]}),
        (
            "c.csv",
            "Step,r - x - l,r - x - l__MIN\n0,3,\n1,2,\n2,,",
            {"run": ["r - x"] * 2, "Step": ["0", "1"], "l": ["3", "2"]},
        ),
    ],
)
def test_a_file_has_the_rows_of_its_runs(
    name: str, content: str, columns: Any, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    found = read_results(tmp_path / name).to_dict(as_series=False)
    assert (found, list(found)) == (columns, list(columns))


def test_an_address_of_a_storage_names_its_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_optuna(tmp_path / "o.db")
    for address in ("sqlite:///o.db", f"sqlite:///{tmp_path}/o.db"):
        for path in (address, Path(address)):  # the command line makes a Path of it
            assert len(read_results(path)) == len(ROWS)


def test_pandas_frames_are_judged_too() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS)
    frame.loc[0, "loss"] = math.nan
    table = lmzoo.judge(frame, **OPTIONS)
    assert table.filter(variant="base")["missing"].item() == 1
    assert dict(table.select("variant", "verdict").iter_rows()) == VERDICTS


def test_judging_imports_neither_torch_nor_ray() -> None:
    script = (
        f"import sys, lmzoo; lmzoo.judge({str(EXAMPLE)!r}, by='variant', metric='loss');"
        "print(*{'torch', 'ray', 'optuna'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
