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
from lmzoo.lab.judging.account import Question
from lmzoo.lab.judging.verdicts import judgement
from tests.cases import cases
from tests.user_errors import raises_user_error

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


SEEDS = st.lists(st.floats(-5, 5), min_size=3, max_size=6)
TINY = [[0.0, 0.0, 0.0], [0.0, 0.0, 4e-304]]
"""The square of the last number is 0."""


@example(TINY)
@given(st.lists(SEEDS, min_size=2, max_size=5))
@settings(max_examples=40)
def test_a_higher_metric_is_the_mirror_of_a_lower_one(losses):
    rows = []
    for variant, own in enumerate(losses):
        for loss in own:
            rows.append({"variant": variant, "loss": loss, "score": -loss})
    low = judged_by("loss", rows, higher_is_better=False)
    high = judged_by("score", rows, higher_is_better=True)
    assert low["verdict"].equals(high["verdict"])
    shown = map(str, high["difference"])
    assert "-0.0" not in shown
    mirror = {
        "difference": "difference",
        "difference_low": "difference_high",
        "difference_high": "difference_low",
    }
    for name, other in mirror.items():
        np.testing.assert_allclose(low[name], -high[other])


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
        losses = {}
        for (name,), own in runs.group_by("record"):
            losses[str(name)] = own["loss"].to_numpy()
        self.new = losses[self.row["variant"]]
        self.old = losses[self.row["against"]]
        self.test = self.welch()
        self.low, self.high = self.test.confidence_interval(0.95)

    def welch(self, shift=0.0, alternative="two-sided"):
        """Return Welch's test of the shifted losses of the record."""
        new = self.new + shift
        return stats.ttest_ind(new, self.old, equal_var=False, alternative=alternative)

    @property
    def word(self) -> str:
        """The verdict by scipy: two one-sided tests, then the interval."""
        above = self.welch(MARGIN, "greater")
        below = self.welch(-MARGIN, "less")
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
    name = record.word.replace("-open", " (size open)")
    interval = f"{row['difference_low']:+.4f} to {row['difference_high']:+.4f}"
    numbers = f"{row['difference']:+.4f} | {interval}"
    printed = numbers.replace("-", "−")
    line = f"| #{row['variant']} | #{row['against']} | {name} | {printed} |"
    assert line in Path("docs/how/judge.md").read_text()


def width(rows):
    """Return the largest width of an interval."""
    frame = judgement(rows, Question(**OPTIONS)).frame
    ends = frame["difference_high"] - frame["difference_low"]
    return ends.drop_nulls().max()


@pytest.fixture
def other_seeds():
    """The runs of each variant with seeds of its own."""
    rows = []
    for row in ROWS:
        seed = f"{row['variant']} {row['seed']}"
        rows.append(row | {"seed": seed})
    return rows


def test_runs_of_equal_seeds_are_paired():
    report = judgement(ROWS, Question(**OPTIONS))
    assert report.frame["paired"].all()
    assert report.heading[1].startswith("paired by seed")


def test_runs_of_different_seeds_are_unpaired(other_seeds):
    report = judgement(other_seeds, Question(**OPTIONS))
    assert not report.frame["paired"].any()
    assert report.heading[1].startswith("unpaired")


def test_what_the_runs_of_a_seed_share_cancels_in_pairs(other_seeds):
    assert width(ROWS) < width(other_seeds) / 1.5


@pytest.mark.parametrize("scale", [1e-160, 1e-12, 1e-5, 1e5, 1e30, 1e90])
def test_numbers_of_any_size_have_two_digits(scale):
    results = pl.read_csv(EXAMPLE).with_columns(pl.col("loss") * scale)
    margin = OPTIONS["margin"] * scale
    report = judgement(results, Question(**OPTIONS | {"margin": margin}))
    frame = report.frame.drop_nulls("difference")
    halves = frame["difference_high"] - frame["difference"]
    exact = zip(frame["difference"], halves, strict=True)
    for text, (difference, half) in zip(differences_in(report), exact, strict=True):
        numbers = text.replace("−", "-").split(" ±")
        read = list(map(float, numbers))
        assert read == pytest.approx([difference, half], rel=0.05, abs=0.01 * half)


def differences_in(report):
    """Return the texts of the differences in the table of a report."""
    table = report.tables[0]
    column = table.header.index("difference")
    return [row[column] for row in table.rows if row[column]]


@cases("lab/judging/cases.toml", "bad")
def test_bad_input_is_one_line(case, tmp_path):
    file = tmp_path / "r.csv"
    file.write_text(case["content"])
    question = OPTIONS | case.get("question", {})
    with raises_user_error(case["says"]):
        lmzoo.judge(file, **question)
