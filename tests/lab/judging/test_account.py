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
from tests.lab.judging.test_sources import RUNS, changed, chart, said, table

STEPS = [(v, s, k, x + 2 - k) for v, s, x in RUNS for k in (1, 2)]
STEP: dict[str, Any] = {"step": "step"}
HEAD = "variant,seed,step,loss"

LATE = table([(v, s, k, x - 1.5 * (v == "base" and k < 2)) for v, s, k, x in STEPS], HEAD)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (table([(*r, 1) for r in RUNS], "variant,seed,loss, loss"), "two columns are named 'loss'"),
        (table([*RUNS, ("cand", "1.0", 2)]), "two rows have variant 'cand', seed 1"),
        (table([(*r, *r) for r in RUNS], "variant,a_seed,loss,x,b_seed,y"), "a_seed or b_seed?"),
        (table([(r[0], e, 1) for r in RUNS for e in (1, 2)], "variant,n timesteps,loss"), "ps 1, "),
        (table([(v, e, 1) for v in "ab" for e in (5, 9, 30)], "variant,epoch,loss"), "epoch 5, "),
        (table([("a", 5 + e * e, 1) for e in range(5)], "variant,step,loss"), "step 5, 6, ..."),
        (table([(*r, 9, r[2]) for r in STEPS], "variant,seed,best_step,loss,iter,epoch"), "step e"),
        (table([(*r, 1) for r in RUNS], "variant,seed,loss,seed"), "two columns are named 'seed'"),
        (table([(*r, "ok", "oom") for r in RUNS], "variant,seed,loss,state,state"), "two columns"),
        (table([(v, "", x) for v, _, x in RUNS]), "no row has a value of variant and seed"),
        (table([*RUNS, ("cand", 9, "1_000")]), "not a number up to 1e+100; write 1234.5"),
        (table([*RUNS, ("cand", 9, "1e999")]), "not a number up to 1e+100"),
        (table([*RUNS, ("cand", 9, "—")], sep=";").replace(".", ","), "row 9: loss is '—'"),
        (chart([*RUNS, RUNS[-1]]), "two runs of the chart have a column 'cand-s3 - loss'"),
        (changed("loss", "1,005", "948", "\t"), "has marks of thousands or of decimals"),
        (changed("loss", "1.005", "948", ";"), "has marks of thousands or of decimals"),
        (table([(v, e, 1) for v in "ab" for e in range(2, 9)], "variant,step,loss"), "step 2, 3,"),
        ("2.5,1\n2.4,2\n", "the first line has numbers only, 2.5, ..."),
        (changed("variant", "${a}"), "variant is '${a}', whose value is not in its file"),
        (table([(*r, i) for i, r in enumerate(RUNS)], "variant,seed,loss,a.seed"), "or a.seed?"),
    ],
    ids=range(20),
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused_in_one_line(content, message, tmp_path):
    with pytest.raises(UserError) as error:
        said(content, tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "question", "text"),
    [
        (table([(v + " " * (s > 1), s, x) for v, s, x in RUNS]), {}, "1 contrast with 'base'"),
        (changed("variant", "cand "), {}, "differ by blanks only, and are one: 'cand' and 'cand '"),
        (changed("variant", "BASE"), {}, "'base' and 'BASE' are two; are they one?"),
        (changed("seed", "NaN"), {}, "6 counted, 1 without a pair, 1 without a value of seed"),
        (changed("seed", "03"), {}, "seeds written in several ways are one: '3' and '03'"),
        (changed("seed", "3e0"), {}, "seeds written in several ways are one: '3' and '3e0'"),
        (table(head="variant,fold,loss"), {}, "each row counts as a run; is fold a seed (--seed)"),
        (table([(*r, r[1] % 2) for r in RUNS], "variant,Run,loss,bn"), {}, "Run counts by itself"),
        (table([*RUNS, ("base", "std", 0.01)]), {}, "9 rows read: 8 counted, 1 means and other"),
        (table([(v, x) for v, _, x in RUNS] * 2, "variant,loss"), {}, "8 rows repeat another one"),
        (table(head="variant,seed,valF1Score"), {"metric": "valF1Score"}, "1 worse"),
        (changed("m", "acc", "acc"), {"within": "m"}, "--higher-is-better is not given for acc"),
        (table(head="variant,seed,err"), {"metric": "err", "higher_is_better": True}, "is given"),
        (table(head="variant,seed,neg_log_loss"), {"metric": "neg_log_loss"}, "1 worse"),
        (table(head="variant,no,loss") + "x,9,1\n", {"seed": "no"}, "single seed"),
        (changed("variant", ""), {}, "left out, as variant is empty: seed 3"),
        (changed("loss", 2**60), {}, "loss: 1 integers above 2^53 are rounded"),
        (table([*RUNS, ("variant", "seed", "loss")]), {}, "1 lines repeat the header"),
        (table([(v, 4 * (v == "cand") + s, x) for v, s, x in RUNS]), {}, "so it pairs none"),
        (changed("loss", ""), {}, "cand: 1 missing\nbase: 1 of 4 without a pair"),
        (changed("loss", "inf"), {}, "cand: 1 of 4 diverged"),
        (changed("loss", "nan", sep=";").replace(".", ","), {}, "7 counted, 1 diverged"),
        (table([(v, s, 1) for v, s, _ in RUNS]), {}, "'cand': every seed has the same"),
        (changed("data", "b", "a"), {"within": "data"}, "none to compare with: b"),
        (changed("phase", "Evicted", "Succeeded"), {}, "phase (Evicted; Succeeded) is no state"),
        (changed("epoch", 3, 9), {}, "ended before epoch 9, and their last value counts"),
        (table()[:-4], {}, "the last line has no end: is loss '1.' whole?"),
        (table()[:-7], {}, "1 torn (not written to its end)"),
        (table(STEPS[:-1], HEAD), STEP, "counts: variant 'cand', seed 3 (at 1)"),
        (table([*STEPS, ("base", 0, 2, 1.5)], HEAD), STEP, "several values at the last step"),
        (table([*STEPS, ("base", 0, 1, 1.5)], HEAD), STEP, "counts: variant 'base', seed 0"),
        (table([(*r[:3], r[3] if r[2] > 1 else "nan") for r in STEPS], HEAD), STEP, "8 counted, 8"),
        (table([*STEPS, *((*r[:2], 3, "nan") for r in RUNS)], HEAD), STEP, "NaN is read as an"),
        (table([*STEPS, ("cand", 3, 3, "nan")], HEAD), STEP, "7 counted, 1 diverged, 9 other"),
        (LATE, STEP, "base 1.915, best 1.415; cand 1.816, best 1.816; the sign of cand turns"),
        (LATE, STEP | {"best": "loss"}, "row of each run by loss counts, of 2 to 2 rows"),
        (LATE, STEP | {"best": "loss"}, "1 worse"),
        (changed("environment.torch", 2, 1), {}, "torch differs: 7 runs with 1 (base, cand); 1 r"),
    ],
    ids=range(38),
)  # fmt: skip
def test_what_is_guessed_or_left_out_is_said(content, question, text, tmp_path: Path) -> None:
    assert text in said(content, tmp_path, **question)


def test_what_is_plain_is_not_said(tmp_path: Path) -> None:
    rows = [(v, i, x, ("keep", "discard")[i % 2], "") for i, (v, _, x) in enumerate(RUNS)]
    assert "each row" not in said(table(rows, "variant,id,loss,status,epoch"), tmp_path)
    accuracy = table(head="variant,seed,val_acc")
    assert "given for" not in said(accuracy, tmp_path, metric="val_acc", higher_is_better=True)
    lengths = [("a", *r) for r in STEPS if r[2] < 2] + [("b", *r) for r in STEPS]
    found = said(table(lengths, f"data,{HEAD}"), tmp_path, step="step", within="data")
    assert "ended before" not in found


@pytest.mark.parametrize(
    ("column", "values"), [("share_seed", [0.84, 0.5]), ("n_seeds", [3, 5]), ("m.seed", [7, ""])]
)
def test_a_share_a_count_and_a_constant_are_no_seeds(column, values, tmp_path) -> None:
    rows = [(v, x, values[s % 2]) for v, s, x in RUNS]
    assert "unpaired" in said(table(rows, f"variant,loss,{column}"), tmp_path)


def test_lists_of_objects_under_names_are_runs(tmp_path: Path) -> None:
    runs = {v: [{"seed": s, "loss": x} for w, s, x in RUNS if w == v] for v in ("base", "cand")}
    found = said(json.dumps(runs), tmp_path, "r.json", by="run")
    assert "1 better" in found
    assert "8 rows read: 8 counted" in found


def test_results_of_boosted_trees_are_a_history_and_nested_columns_are_read() -> None:
    evals = {"valid_0": {"l2": [3.0, 2.0]}, "valid_1": {"l2": [4.0, 5.0]}}
    assert as_source(evals).frame.columns == ["valid_0.l2", "valid_1.l2"]
    search = {"params": [{"C": 1}, {"C": 2}], "mean_test_score": [0.5, 0.6]}
    assert as_source(search).frame["params.C"].to_list() == ["1", "2"]


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


def test_the_last_row_that_has_the_metric_counts(tmp_path: Path) -> None:
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
            (_, read), *parts = report.account.items()
            assert read == len(rows) == len(found.rows)
            assert sum(count for _, count in parts) == read
            counts = dict(found.rows["why"].value_counts().iter_rows())
            seeds, lone = (report.frame[name].sum() for name in ("seeds", "without_pair"))
            assert seeds + lone == counts.get(COUNTED, 0) + counts.get(DIVERGED, 0)
            assert report.account.get(NO_PAIR, 0) == lone
            assert all(math.isfinite(x) for x in report.frame["mean"].drop_nulls())


@pytest.mark.parametrize(
    "content",
    [
        table(STEPS, HEAD),
        LATE,
        table([*STEPS, ("base", 0, 2, 1.5)], HEAD),
        table([*STEPS, ("base", 0, 1, 1.5)], HEAD),
        table(STEPS[:-1], HEAD),
        table([*STEPS, *((*r[:2], 3, "nan") for r in RUNS)], HEAD),
        table([*STEPS, ("cand", 3, 3, 2**60)], HEAD),
        table([*STEPS, ("cand", 9, 1, ""), ("cand", 9, 2, "")], HEAD),
        table([*STEPS, *((v, s, 3, 5) for v, s, _ in RUNS[:4])], HEAD),
        table([(v, 9 * (k > 1), k, x) for v, s, k, x in STEPS if not s], HEAD),
        table([(*r, "finished" if r[1] else "failed") for r in STEPS], f"{HEAD},status"),
        table([*STEPS, *((v, s, 3, x) for v, s, x in RUNS), ("base", 0, 2, 1.5)], HEAD),
        table([(*r[:3], f"{r[0]}{r[1]}{r[2]}", r[3]) for r in STEPS], "variant,seed,step,run,loss"),
        "# a comment\n" + table(STEPS, HEAD),
        table(STEPS, HEAD, ";").replace(".", ","),
        table(STEPS, HEAD)[:-2],
    ],
    ids=range(16),
)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_scanned_table_has_the_account_of_one_that_is_read(content, kind, tmp_path, monkeypatch):
    path = tmp_path / "r.csv"
    path.write_text(content)
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


def test_a_scan_leaves_out_what_an_account_does_not_look_at(tmp_path: Path) -> None:
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
