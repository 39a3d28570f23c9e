"""The account: every row that is read has a place."""

import csv
import io
import json
import tempfile
from itertools import zip_longest
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo.base.errors import UserError
from lmzoo.lab.judging import scans
from lmzoo.lab.judging.account import COUNTED, DIVERGED, NO_PAIR, Question, account
from lmzoo.lab.judging.sources import as_source
from lmzoo.lab.judging.verdicts import judgement
from tests.cases import cases, rows
from tests.lab.judging.test_sources import RUNS, heading, said, table
from tests.user_errors import raises_user_error

CASES = "lab/judging/cases.toml"
HEAD = "variant,seed,step,loss"


def step_of_runs(step, more=0.0):
    """Return a row of each run at a step; its loss is larger by `more`."""
    return [(variant, seed, step, loss + more) for variant, seed, loss in RUNS]


STEPS = step_of_runs(1, 1.0) + step_of_runs(2)
"""Two steps of each run."""


@cases(CASES, "refused")
def test_what_can_be_read_in_two_ways_is_refused_in_one_line(case, tmp_path):
    with raises_user_error(case["says"]):
        said(case["content"], tmp_path)


@cases(CASES, "said")
def test_what_is_guessed_or_left_out_is_said(case, tmp_path):
    question = case.get("question", {})
    assert case["says"] in said(case["content"], tmp_path, **question)


def test_columns_of_keepers_and_of_epochs_are_not_said(tmp_path):
    rows = []
    for number, (variant, _, loss) in enumerate(RUNS):
        status = "keep"
        if number % 2:
            status = "discard"
        rows.append((variant, number, loss, status, ""))
    found = said(table(rows, "variant,id,loss,status,epoch"), tmp_path)
    assert "each row" not in found


def test_a_setting_that_some_runs_do_not_have_is_not_said_to_differ(tmp_path):
    rows = []
    for variant, seed, loss in RUNS:
        rate = 0.1
        if seed:
            rate = ""
        rows.append((variant, seed, loss, rate))
    content = table(rows, "variant,config.draw,loss,config.lr")
    assert "settings differ" not in said(content, tmp_path, seed="config.draw")


def test_a_known_direction_is_not_said_to_be_given(tmp_path):
    content = table(head="variant,seed,val_acc")
    found = said(content, tmp_path, metric="val_acc", higher_is_better=True)
    assert "given for" not in found


@pytest.mark.parametrize(
    ("column", "even", "odd"), [("share_seed", 0.84, 0.5), ("n_seeds", 3, 5), ("m.seed", 7, "")]
)
def test_a_share_a_count_and_a_constant_are_no_seeds(column, even, odd, tmp_path):
    rows = []
    for variant, seed, loss in RUNS:
        value = even
        if seed % 2:
            value = odd
        rows.append((variant, loss, value))
    assert "unpaired" in said(table(rows, f"variant,loss,{column}"), tmp_path)


def test_lists_of_objects_under_names_are_runs(tmp_path):
    runs = {"base": [], "cand": []}
    for variant, seed, loss in RUNS:
        runs[variant].append({"seed": seed, "loss": loss})
    found = said(json.dumps(runs), tmp_path, "r.json", by="run")
    assert "1 better" in found
    assert "8 rows read: 8 counted" in found


def test_results_of_boosted_trees_are_a_history():
    evals = {
        "valid_0": {"l2": [3.0, 2.0]},
        "valid_1": {"l2": [4.0, 5.0]},
    }
    first, second = as_source(evals).frame.rows()
    assert first == ("0", "3.0", "4.0")
    assert second == ("1", "2.0", "5.0")


def test_nested_columns_are_read():
    params = [{"C": 1}, {"C": 2}]
    # As a search of scikit-learn gives its results.
    search = {"params": params, "mean_test_score": [0.5, 0.6]}
    found = as_source(search).frame
    assert found["params.C"].to_list() == ["1", "2"]


ALONE = [
    ("cand", 10, 3.0),
    ("cand", 11, 4.0),
    ("cand", 12, 5.0),
    ("cand", 13, 6.0),
]
"""Runs of the candidate whose seeds the base does not have."""


def test_runs_without_a_pair_are_said(tmp_path):
    found = said(table(RUNS + ALONE), tmp_path)
    assert "12 rows read: 8 counted, 4 without a pair" in found
    assert "cand: 4 of 8 without a pair" in found


@pytest.fixture
def with_a_missing_loss(tmp_path):
    file = tmp_path / "r.csv"
    file.write_text(table(RUNS[:-1] + ALONE) + "cand,3,\n")
    return file


def test_a_missing_run_is_not_without_a_pair(with_a_missing_loss):
    assert "cand: 1 missing; 4 of 8 without a pair" in heading(with_a_missing_loss)


def test_runs_without_a_pair_are_in_no_number(with_a_missing_loss):
    frame = judgement(with_a_missing_loss, Question(by="variant", metric="loss")).frame
    assert frame["rank"].to_list() == [1, 2]
    assert frame["variant"].to_list() == ["cand", "base"]


def test_pairs_that_the_user_asks_for_must_exist(tmp_path):
    base = RUNS[:4]
    with pytest.raises(UserError, match="share no two seeds"):
        said(table(base + ALONE), tmp_path, paired=True)


WITHOUT_LOSS = [(variant, seed, 3, "") for variant, seed, _ in RUNS]
"""A last step of each run."""


def test_the_last_row_that_has_the_metric_counts(tmp_path):
    found = said(table(STEPS + WITHOUT_LOSS, HEAD), tmp_path, step="step")
    assert "24 rows read: 8 counted, 16 other rows of runs" in found
    assert "several values" not in found


def test_a_row_of_a_history_must_have_a_step(tmp_path):
    rows = STEPS + [("base", 0, "nan", 1)]
    with pytest.raises(UserError, match="row 17 has no step; fill it"):
        said(table(rows, HEAD), tmp_path, step="step")


def test_a_setting_orders_no_rows(tmp_path):
    rows = step_of_runs(9, 1.0) + step_of_runs(9)
    with raises_user_error("two rows have"):
        said(table(rows, HEAD), tmp_path, step="step")


ODD = st.sampled_from(rows(CASES, "odd_cells"))
CELLS = st.one_of(ODD, st.text(max_size=3))
STATED = ["variant", "seed", "step", "loss", "status"]


KINDS = st.sampled_from(["cell", "cell", "cell", "drop", "twice", "short", "blank"])


def change(rows, data):
    """Change a random row of a table in a random way."""
    last = len(rows) - 1
    place = data.draw(st.integers(0, last))
    row = rows[place]
    kind = data.draw(KINDS)
    if kind == "cell":
        row += [""] * (5 - len(row))
        column = data.draw(st.integers(0, 4))
        row[column] = data.draw(CELLS)
    elif kind == "drop" and len(rows) > 1:
        rows.pop(place)
    elif kind == "twice":
        rows.append(row.copy())
    elif kind == "short":
        length = data.draw(st.integers(1, 5))
        rows[place] = row[:length]
    else:
        rows[place] = [""] * 5


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_the_account_adds_up_or_the_table_is_refused(data):
    rows = [list(step) + ["finished"] for step in STEPS]
    changes = data.draw(st.integers(0, 8))
    for _ in range(changes):
        change(rows, data)
    text = io.StringIO()
    csv.writer(text).writerows([STATED] + rows)
    objects = [dict(zip_longest(STATED, row)) for row in rows]
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        file.write(text.getvalue())
        file.flush()
        assert_adds_up(Path(file.name), len(rows))
    assert_adds_up(objects, len(rows))


def assert_adds_up(source, rows):
    question = Question(by="variant", metric="loss", step="step", seed="seed")
    try:
        found = account(source, question)
        report = judgement(source, question)
    except UserError:
        return
    # The first line is the number of all rows.
    read, *parts = report.account.values()
    assert read == len(found.rows) == rows
    assert sum(parts) == read
    counts = dict(found.rows["why"].value_counts().iter_rows())
    lone = report.frame["without_pair"].sum()
    with_a_number = counts.get(COUNTED, 0) + counts.get(DIVERGED, 0)
    assert report.frame["seeds"].sum() + lone == with_a_number
    assert report.account.get(NO_PAIR, 0) == lone
    assert report.frame["mean"].drop_nulls().is_finite().all()


HISTORY = Question(by="variant", metric="loss", step="step")


@pytest.fixture(params=["csv", "jsonl", "parquet"])
def write(request, tmp_path):
    """Return a function that writes a table of CSV in a form."""

    def written(content):
        path = tmp_path / "r.csv"
        path.write_text(content)
        if request.param == "csv":
            return path
        frame = pl.read_csv(path, comment_prefix="#", truncate_ragged_lines=True)
        path = tmp_path / f"r.{request.param}"
        if request.param == "parquet":
            frame.write_parquet(path)
        else:
            frame.write_ndjson(path)
        return path

    return written


@pytest.fixture
def scan_all(monkeypatch):
    """Return a function from which on each table is large."""
    return lambda: monkeypatch.setattr(scans, "LARGE", 0)


@cases(CASES, "scanned")
def test_a_scanned_table_has_the_account_of_one_that_is_read(case, write, scan_all):
    path = write(case["content"])
    read = answer(path)
    scan_all()
    assert answer(path) == read


def answer(path):
    try:
        return judgement(path, HISTORY).heading
    except UserError as error:
        return str(error)


@pytest.fixture
def long_history(tmp_path):
    """Five hundred steps of each run, with a setting."""
    rows = []
    for variant, seed, loss in RUNS:
        # The loss falls by 1 each step.
        for step in range(500):
            left = 500 - step
            rows.append((variant, seed, step, loss + left, 0.1))
    file = tmp_path / "r.csv"
    file.write_text(table(rows, f"{HEAD},lr"))
    return file


def test_a_small_table_is_not_scanned(long_history):
    assert scans.large_table(long_history, HISTORY) is None


def test_a_scan_leaves_out_what_an_account_does_not_look_at(long_history, scan_all):
    scan_all()
    found = scans.large_table(long_history, HISTORY)
    assert found is not None
    assert found.frame.columns == HEAD.split(",")
    assert len(found.frame) == 16
    # Of 4,000 rows, two of each run are read.
    assert found.unread == 3984
