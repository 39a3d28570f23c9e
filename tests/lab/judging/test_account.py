"""The account: every row that is read has a place."""

import csv
import io
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.account import COUNTED, DIVERGED, NO_PAIR, Question, account
from lmzoo.lab.judging.verdicts import judgement
from tests.lab.judging.test_sources import RUNS, said, table


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (table([(*r, 1) for r in RUNS], "variant,seed,loss, loss"), "two columns are named 'loss'"),
        (table([*RUNS, ("cand", "1.0", 2)]), "two rows have variant 'cand', seed 1"),
        (table([*RUNS, (" cand", "1", 2)]), "two rows have variant 'cand', seed 1"),
        (table([(*r, *r) for r in RUNS], "variant,a_seed,loss,x,b_seed,y"), "a_seed or b_seed?"),
        (table([(r[0], e, r[2]) for r in RUNS for e in (1, 2)], "variant,epoch,loss"), "epoch 1, "),
        (table([(v, e, 1) for v in "ab" for e in (5, 9, 30)], "variant,epoch,loss"), "epoch 5, "),
        (table([(*r, e) for r in RUNS for e in range(3)], "variant,run,loss,x"), "two rows have"),
        (table([(*r, e) for r in RUNS for e in (0, 1)], "variant,seed,loss,epoch"), "--step epoch"),
        (table([(*r, 1) for r in RUNS], "variant,seed,loss,seed"), "two columns are named 'seed'"),
        (table([(*r, "ok", "oom") for r in RUNS], "variant,seed,loss,state,state"), "two columns"),
        (table([(v, "", x) for v, _, x in RUNS]), "no row has a value of variant and seed"),
        (table([*RUNS, ("cand", 9, "1_000")]), "not a number up to 1e+100; write 1234.5"),
        (table([*RUNS, ("cand", 9, 10**400)]), "not a number up to 1e+100"),
        (table([*RUNS, ("cand", 9, "1e999")]), "not a number up to 1e+100"),
    ],
    ids=range(14),
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused_in_one_line(content, message, tmp_path):
    with pytest.raises(UserError) as error:
        said(content, tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_names_that_look_alike_are_said(tmp_path: Path) -> None:
    rows = [(v + " " * (s > 1), s, x) for v, s, x in RUNS]
    found = said(table(rows), tmp_path)
    assert "1 contrast with 'base'" in found
    assert "differ by blanks only, and are one: 'base' and 'base '" in found
    rows = [({"base": "1.1", "cand": "1.10"}[v], s, x) for v, s, x in RUNS]
    assert "'1.1' and '1.10' are two; are they one?" in said(table(rows), tmp_path)
    no_seed = table([(v, s or "NaN", x) for v, s, x in RUNS])
    assert "6 counted, 2 without a variant, seed or table" in said(no_seed, tmp_path)
    assert "seeds written in several ways are one: '1' and '01'" in said(
        table([(v, f"0{s}" if v == "cand" else s, x) for v, s, x in RUNS if s]), tmp_path
    )
    powers = table([(v, f"{s + 1}e2" if v == "cand" else 100 * s + 100, x) for v, s, x in RUNS])
    assert "seeds written in several ways are one: '100' and '1e2'" in said(powers, tmp_path)


def test_a_column_that_numbers_the_rows_is_asked_for(tmp_path: Path) -> None:
    found = said(table(head="variant,fold,loss"), tmp_path)
    assert "each row counts as a run; is fold a seed (--seed) or a step (--step)?" in found
    two_rows = table([run for run in RUNS if run[1] < 2], "variant,fold,loss")
    assert "is fold a seed" in said(two_rows, tmp_path)
    rows = [(v, i, x) for i, (v, _, x) in enumerate(RUNS)]
    assert "each row" not in said(table(rows, "variant,id,loss"), tmp_path)
    with pytest.raises(UserError, match="by names no column"):
        said(table(), tmp_path, by=[])


def test_a_direction_that_the_metric_contradicts_is_said(tmp_path: Path) -> None:
    accuracy = table(head="variant,seed,val_acc")
    assert "not given for val_acc" in said(accuracy, tmp_path, metric="val_acc")
    assert "is given for loss" in said(table(), tmp_path, higher_is_better=True)
    assert "given for" in said(
        table(head="variant,seed,err"), tmp_path, metric="err", by="variant", higher_is_better=True
    )
    assert "given for" not in said(accuracy, tmp_path, metric="val_acc", higher_is_better=True)


def test_runs_without_a_pair_are_in_no_number(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("loss", "said_of_it"),
    [("", "cand: 1 missing\nbase: 1 of 4 without a pair"), ("inf", "cand: 1 of 4 diverged")],
)
def test_one_run_that_lacks_is_said(loss, said_of_it, tmp_path: Path) -> None:
    assert said_of_it in said(table([*RUNS[:-1], ("cand", 3, loss)]), tmp_path)


def test_the_last_row_that_has_the_metric_counts(tmp_path: Path) -> None:
    rows = []
    for v, s, x in RUNS:
        rows += [(v, s, 1, x + 1), (v, s, 2, x), (v, s, 3, "")]
    rows[-2:] = []  # the last run ends early
    found = said(table(rows, "variant,seed,step,loss"), tmp_path, step="step")
    assert "22 rows read: 8 counted, 14 other rows of runs" in found
    assert "several values" not in found
    early = "ended before step 2, and their last value counts: variant 'cand', seed 3 (at 1)"
    assert early in found
    with pytest.raises(UserError, match="row 23 has no step; fill it"):
        said(table([*rows, ("base", 0, "nan", 1)], "variant,seed,step,loss"), tmp_path, step="step")
    rows += [("base", 0, 2, 1.5)]
    found = said(table(rows, "variant,seed,step,loss"), tmp_path, step="step")
    assert "several values at the last step; the last row counts: variant 'base', seed 0" in found


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
            read, *numbers = map(int, re.findall(r"(?:^|, |: )(\d+) (?!of)", report.heading[1]))
            assert read == len(rows) == len(found.rows)
            assert sum(numbers) == read, report.heading[1]
            counts = dict(found.rows["why"].value_counts().iter_rows())
            seeds, lone = (report.frame[name].sum() for name in ("seeds", "without_pair"))
            assert seeds + lone == counts.get(COUNTED, 0) + counts.get(DIVERGED, 0)
            assert f"{lone} {NO_PAIR}" in report.heading[1] or not lone
            assert all(math.isfinite(x) for x in report.frame["mean"].drop_nulls())
