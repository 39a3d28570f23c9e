"""Verdicts on results of other programs: the choice of the pairs, words, numbers and errors."""

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


def judged_by(metric, rows, *, higher_is_better):
    """Return the table by variant, its numbers as floats."""
    found = lmzoo.judge(
        rows, by="variant", metric=metric, margin=0.5, higher_is_better=higher_is_better
    )
    numbers = pl.col("difference", "difference_low", "difference_high")
    return found.with_columns(numbers.cast(pl.Float64)).sort("variant")


@example([[0.0, 0.0, 0.0], [0.0, 0.0, 4e-304]])  # its square is 0
@given(st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=6), min_size=2, max_size=5))
@settings(max_examples=40)
def test_a_higher_metric_is_the_mirror_of_a_lower_one(losses):
    rows = []
    for variant, own in enumerate(losses):
        for loss in own:
            rows.append({"variant": variant, "loss": loss, "score": -loss})
    low = judged_by("loss", rows, higher_is_better=False)
    high = judged_by("score", rows, higher_is_better=True)
    assert low["verdict"].equals(high["verdict"])
    assert "-0.0" not in set(map(str, high["difference"]))
    np.testing.assert_allclose(low["difference"], -high["difference"])
    np.testing.assert_allclose(low["difference_low"], -high["difference_high"])
    np.testing.assert_allclose(low["difference_high"], -high["difference_low"])


SPEEDRUN = EXAMPLE.with_name("speedrun_track3.csv")
MARGIN = 0.0016
COMPARISONS = pl.read_csv(SPEEDRUN).partition_by("comparison", maintain_order=True)


class Comparison:
    """Runs of a record and of the one before it, judged, and as arrays."""

    def __init__(self, runs: pl.DataFrame) -> None:
        table = lmzoo.judge(
            runs, by="record", seed="run", metric="loss", margin=MARGIN, paired=False
        )
        (self.row,) = table.drop_nulls("verdict").to_dicts()
        record = pl.col("record").cast(pl.String)
        self.new = runs.filter(record == self.row["variant"])["loss"].to_numpy()
        self.old = runs.filter(record == self.row["against"])["loss"].to_numpy()
        self.test = stats.ttest_ind(self.new, self.old, equal_var=False)
        self.low, self.high = self.test.confidence_interval(0.95)

    @property
    def word(self) -> str:
        """The verdict by scipy: two one-sided tests, then the interval."""
        above = stats.ttest_ind(self.new + MARGIN, self.old, equal_var=False, alternative="greater")
        below = stats.ttest_ind(self.new - MARGIN, self.old, equal_var=False, alternative="less")
        if max(above.pvalue, below.pvalue) < 0.05:
            return "negligible"
        # A lower loss is better.
        if self.high < -MARGIN:
            return "better"
        if self.high < 0:
            return "better-open"
        return "undecided"


@pytest.fixture(params=COMPARISONS, ids=range(len(COMPARISONS)))
def record(request):
    return Comparison(request.param)


def test_the_numbers_of_the_speedrun_are_those_of_scipy(record):
    names = ("difference", "difference_low", "difference_high", "p")
    shown = [record.row[name] for name in names]
    difference = record.new.mean() - record.old.mean()
    expected = [difference, record.low, record.high, record.test.pvalue]
    assert shown == pytest.approx(expected, rel=1e-6)


def test_the_verdicts_of_the_speedrun_are_those_of_scipy(record):
    assert record.row["verdict"] == record.word


def test_the_page_shows_each_record_of_the_speedrun(record):
    row = record.row
    name = {"better-open": "better (size open)"}.get(record.word, record.word)
    interval = f"{row['difference_low']:+.4f} to {row['difference_high']:+.4f}"
    numbers = f"{row['difference']:+.4f} | {interval}".replace("-", "−")
    line = f"| #{row['variant']} | #{row['against']} | {name} | {numbers} |"
    assert line in Path("docs/how/judge.md").read_text()


def width(rows):
    """Return the largest width of an interval."""
    frame = judgement(rows, Question(**OPTIONS)).frame
    ends = frame["difference_high"] - frame["difference_low"]
    return ends.drop_nulls().max()


@pytest.fixture
def other_seeds():
    """The runs of each variant with seeds of its own."""
    return [row | {"seed": f"{row['variant']} {row['seed']}"} for row in ROWS]


def test_runs_of_equal_seeds_are_paired():
    report = judgement(ROWS, Question(**OPTIONS))
    assert set(report.frame["paired"]) == {True}
    assert report.heading[1].startswith("paired by seed")


def test_runs_of_different_seeds_are_unpaired(other_seeds):
    report = judgement(other_seeds, Question(**OPTIONS))
    assert set(report.frame["paired"]) == {False}
    assert report.heading[1].startswith("unpaired")


def test_what_the_runs_of_a_seed_share_cancels_in_pairs(other_seeds):
    assert width(ROWS) < width(other_seeds) / 1.5


@pytest.mark.parametrize("scale", [1e-160, 1e-12, 1e-5, 1e5, 1e30, 1e90])
def test_numbers_of_any_size_have_two_digits(scale):
    rows = [row | {"loss": scale * row["loss"]} for row in ROWS]
    report = judgement(rows, Question(**OPTIONS | {"margin": 0.02 * scale}))
    frame = report.frame.drop_nulls("difference")
    halves = frame["difference_high"] - frame["difference"]
    exact = list(zip(frame["difference"], halves, strict=True))
    column = report.tables[0].header.index("difference")
    shown = [row[column] for row in report.tables[0].rows if row[column]]
    assert len(shown) == len(exact)
    for text, numbers in zip(shown, exact, strict=True):
        read = [float(number) for number in text.replace("−", "-").split(" ±")]
        assert read == pytest.approx(numbers, rel=0.05, abs=0.01 * numbers[1])


@cases("lab/judging/cases.toml", "bad")
def test_bad_input_is_one_line(case, tmp_path):
    file = tmp_path / "r.csv"
    file.write_text(case["content"])
    with pytest.raises(UserError) as error:
        lmzoo.judge(file, **OPTIONS | case.get("question", {}))
    assert case["says"] in str(error.value)
    assert "\n" not in str(error.value)
