"""The account: every row that is read has a place."""

import csv
import io
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo.base.errors import UserError
from lmzoo.lab.judging import scans
from lmzoo.lab.judging.account import COUNTED, DIVERGED, NO_PAIR, Question, account
from lmzoo.lab.judging.sources import as_source
from lmzoo.lab.judging.verdicts import judgement
from tests.cases import cases
from tests.lab.judging.test_sources import RUNS, said, table

STEPS = [(v, s, k, x + 2 - k) for v, s, x in RUNS for k in (1, 2)]
HEAD = "variant,seed,step,loss"


@cases("lab/judging/cases.toml", "refused")
def test_what_can_be_read_in_two_ways_is_refused_in_one_line(case, tmp_path):
    with pytest.raises(UserError) as error:
        said(case["content"], tmp_path)
    assert case["says"] in str(error.value)
    assert "\n" not in str(error.value)


@cases("lab/judging/cases.toml", "said")
def test_what_is_guessed_or_left_out_is_said(case, tmp_path):
    assert case["says"] in said(case["content"], tmp_path, **case.get("question", {}))


def test_what_is_plain_is_not_said(tmp_path):
    rows = [(v, i, x, ("keep", "discard")[i % 2], "") for i, (v, _, x) in enumerate(RUNS)]
    assert "each row" not in said(table(rows, "variant,id,loss,status,epoch"), tmp_path)
    accuracy = table(head="variant,seed,val_acc")
    rates = [(v, s, x, "" if s else 0.1) for v, s, x in RUNS]
    found = said(
        table(rows=rates, head="variant,config.draw,loss,config.lr"), tmp_path, seed="config.draw"
    )
    assert "settings differ" not in found
    assert "given for" not in said(accuracy, tmp_path, metric="val_acc", higher_is_better=True)


@pytest.mark.parametrize(
    ("column", "values"), [("share_seed", [0.84, 0.5]), ("n_seeds", [3, 5]), ("m.seed", [7, ""])]
)
def test_a_share_a_count_and_a_constant_are_no_seeds(column, values, tmp_path):
    rows = [(v, x, values[s % 2]) for v, s, x in RUNS]
    assert "unpaired" in said(table(rows, f"variant,loss,{column}"), tmp_path)


def test_lists_of_objects_under_names_are_runs(tmp_path):
    runs = {v: [{"seed": s, "loss": x} for w, s, x in RUNS if w == v] for v in ("base", "cand")}
    found = said(json.dumps(runs), tmp_path, "r.json", by="run")
    assert "1 better" in found
    assert "8 rows read: 8 counted" in found


def test_results_of_boosted_trees_are_a_history_and_nested_columns_are_read():
    evals = {"valid_0": {"l2": [3.0, 2.0]}, "valid_1": {"l2": [4.0, 5.0]}}
    assert as_source(evals).frame.rows() == [("0", "3.0", "4.0"), ("1", "2.0", "5.0")]
    search = {"params": [{"C": 1}, {"C": 2}], "mean_test_score": [0.5, 0.6]}
    assert as_source(search).frame["params.C"].to_list() == ["1", "2"]


def test_runs_without_a_pair_are_in_no_number(tmp_path):
    more = [("cand", 10 + s, 3.0 + s) for s in range(4)]
    found = said(table([*RUNS, *more]), tmp_path)
    assert "12 rows read: 8 counted, 4 without a pair" in found
    assert "cand: 4 of 8 without a pair" in found
    lost = said(table([*RUNS[:-1], *more]) + "cand,3,\n", tmp_path)
    assert "cand: 1 missing; 4 of 8 without a pair" in lost
    frame = judgement(tmp_path / "r.csv", Question(by="variant", metric="loss")).frame
    assert frame["rank"].to_list() == [1, 2]
    assert frame["variant"].to_list() == ["cand", "base"]
    with pytest.raises(UserError, match="share no two seeds"):
        said(table([*RUNS[:4], *more]), tmp_path, paired=True)


def test_the_last_row_that_has_the_metric_counts(tmp_path):
    rows = [*STEPS, *((v, s, 3, "") for v, s, _ in RUNS)]
    found = said(table(rows, HEAD), tmp_path, step="step")
    assert "24 rows read: 8 counted, 16 other rows of runs" in found
    assert "several values" not in found
    with pytest.raises(UserError, match="row 25 has no step; fill it"):
        said(table([*rows, ("base", 0, "nan", 1)], HEAD), tmp_path, step="step")
    with pytest.raises(UserError, match="two rows have"):  # a setting orders no rows
        said(table([(*r[:2], 9, r[3]) for r in STEPS], HEAD), tmp_path, step="step")


CELLS = st.one_of(
    st.sampled_from(["", " ", "base", "cand", "base ", "0", "1", "1.0", "01", "2", "nan", "inf"]),
    st.sampled_from(["crash", "finished", "1.85", "-3", "1e999", "1,5", '"', "#", "\t", "é"]),
    st.text(max_size=3),
)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_the_account_adds_up_or_the_table_is_refused(data):
    head = ["variant", "seed", "step", "loss", "status"]
    rows = [[v, s, k, x + 2 - k, "finished"] for v, s, x in RUNS for k in (1, 2)]
    for _ in range(data.draw(st.integers(0, 8))):
        row = data.draw(st.integers(0, len(rows) - 1))
        kinds = ["cell", "cell", "cell", "drop", "twice", "short", "blank"]
        kind = data.draw(st.sampled_from(kinds))
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
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        file.write(text.getvalue())
        file.flush()
        for source in (Path(file.name), frame_rows):
            try:
                found = account(source, question)
                report = judgement(source, question)
            except UserError:
                continue
            (_, read), *parts = report.account.items()
            assert read == len(rows) == len(found.rows)
            assert sum(count for _, count in parts) == read
            counts = dict(found.rows["why"].value_counts().iter_rows())
            seeds, lone = (report.frame[name].sum() for name in ("seeds", "without_pair"))
            assert seeds + lone == counts.get(COUNTED, 0) + counts.get(DIVERGED, 0)
            assert report.account.get(NO_PAIR, 0) == lone
            assert all(math.isfinite(x) for x in report.frame["mean"].drop_nulls())


@cases("lab/judging/cases.toml", "scanned")
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_scanned_table_has_the_account_of_one_that_is_read(case, kind, tmp_path, monkeypatch):
    path = tmp_path / "r.csv"
    path.write_text(case["content"])
    if kind != "csv":
        frame = pl.read_csv(path, comment_prefix="#", truncate_ragged_lines=True)
        path = tmp_path / f"r.{kind}"
        (frame.write_parquet if kind == "parquet" else frame.write_ndjson)(path)

    def answer() -> Any:
        try:
            return judgement(path, Question(by="variant", metric="loss", step="step")).heading
        except UserError as error:
            return str(error)

    read = answer()
    monkeypatch.setattr(scans, "LARGE", 0)
    assert answer() == read


def test_a_scan_leaves_out_what_an_account_does_not_look_at(tmp_path):
    rows = [(v, s, k, x + 500 - k, 0.1) for v, s, x in RUNS for k in range(500)]
    file = tmp_path / "r.csv"
    file.write_text(table(rows, f"{HEAD},lr"))
    question = Question(by="variant", metric="loss", step="step")
    found = scans.large_table(file, question)
    assert found is None  # it is small
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scans, "LARGE", 0)
        found = scans.large_table(file, question)
    assert found is not None
    assert (found.frame.columns, len(found.frame), found.unread) == (HEAD.split(","), 16, 3984)
