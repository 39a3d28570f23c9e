"""Verdicts on results of other programs: the choice of the pairs, words, numbers and errors."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

import lmzoo
from lmzoo.base.errors import UserError
from lmzoo.lab.judging.account import Question
from lmzoo.lab.judging.verdicts import judgement
from tests.cases import cases

EXAMPLE = Path("docs/assets/judge/results.csv")
ROWS = pl.read_csv(EXAMPLE).to_dicts()
OPTIONS: dict[str, Any] = {"by": "variant", "seed": "seed", "metric": "loss", "margin": 0.02}


@example([[0.0, 0.0, 0.0], [0.0, 0.0, 4e-304]])  # its square is 0
@given(st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=6), min_size=2, max_size=5))
@settings(max_examples=40)
def test_a_higher_metric_is_the_mirror_of_a_lower_one(losses):
    rows = [{"v": i, "x": x, "y": -x} for i, own in enumerate(losses) for x in own]
    low = lmzoo.judge(rows, by="v", metric="x", margin=0.5, higher_is_better=False).sort("variant")
    high = lmzoo.judge(rows, by="v", metric="y", margin=0.5, higher_is_better=True).sort("variant")
    assert low["verdict"].equals(high["verdict"])
    np.testing.assert_allclose(low["difference"], -high["difference"].cast(pl.Float64))
    assert "-0.0" not in set(map(str, high["difference"]))
    ends = low.select("difference_low", "difference_high").fill_null(math.nan).to_numpy()
    mirrored = high.select("difference_high", "difference_low").fill_null(math.nan).to_numpy()
    np.testing.assert_allclose(ends, -mirrored)


def test_the_records_of_the_speedrun_are_judged_as_by_scipy_and_as_the_page_says():
    path, margin = EXAMPLE.with_name("speedrun_track3.csv"), 0.0016
    options: dict[str, Any] = {"by": "record", "seed": "run", "metric": "loss"}
    page, said = Path("docs/how/judge.md").read_text(), []
    for runs in pl.read_csv(path).partition_by("comparison", maintain_order=True):
        table = lmzoo.judge(runs, margin=margin, paired=False, **options)
        (row,) = table.drop_nulls("verdict").to_dicts()
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


def test_seeds_decide_whether_runs_are_paired():
    """The part that the runs of a seed share cancels only in pairs."""
    other = [{**row, "seed": f"{row['variant']} {row['seed']}"} for row in ROWS]
    widths = []
    for rows, paired in ((ROWS, True), (other, False)):
        report = judgement(rows, Question(**OPTIONS))
        assert set(report.frame["paired"]) == {paired}
        assert report.heading[1].startswith("paired by seed" if paired else "unpaired")
        ends = report.frame["difference_high"] - report.frame["difference_low"]
        widths.append(ends.drop_nulls().max())
    assert widths[0] < widths[1] / 1.5


@pytest.mark.parametrize("scale", [1e-160, 1e-12, 1e-5, 1e5, 1e30, 1e90])
def test_numbers_of_any_size_have_two_digits(scale):
    rows = [{**row, "loss": scale * row["loss"]} for row in ROWS]
    report = judgement(rows, Question(**{**OPTIONS, "margin": 0.02 * scale}))
    at = report.tables[0].header.index("difference")
    shown = [row[at].replace("−", "-").split(" ±") for row in report.tables[0].rows if row[at]]
    exact = report.frame.drop_nulls("difference")
    halves = exact["difference_high"] - exact["difference"]
    pairs = zip(exact["difference"], halves, strict=True)
    assert [[float(text) for text in own] for own in shown] == [
        pytest.approx(numbers, rel=0.05, abs=0.01 * numbers[1]) for numbers in pairs
    ]


@cases("lab/judging/cases.toml", "bad")
def test_bad_input_is_one_line(case, tmp_path):
    file = tmp_path / "r.csv"
    file.write_text(case["content"])
    with pytest.raises(UserError) as error:
        lmzoo.judge(file, **{**OPTIONS, **case.get("question", {})})
    assert case["says"] in str(error.value)
    assert "\n" not in str(error.value)
