"""The walk to the smallest cell: what it cuts, when it ends, and its error."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

import lmzoo
from lmzoo import FloatRange, shrinking
from tests.cli.run_lmzoo import run_lmzoo

BOTH = "cut gate_bias (2) + candidate_bias (5)"
FREE = {"cut candidate_bias (5)": -0.001, "cut gate_bias (2)": 0.002, BOTH: 0.004}
"""Differences of the cuts that are good."""


def test_a_walk_cuts_what_is_good_with_one_error(monkeypatch):
    studies = []
    spent = []
    repeats = list(FREE)
    monkeypatch.setattr(shrinking, "run_study", lambda study, **_: studies.append(study))

    def verdicts(folder, error):
        _, *points = studies[-1].points
        compared = len(points)
        if len(studies) > 1:
            # One of them is the cell of the step before.
            compared -= 1
        spent.append(error * compared)
        rows = []
        for point in points:
            verdict = "worse"
            if point.label in FREE:
                verdict = "negligible"
            rows.append((point.label, verdict, FREE.get(point.label, 0.1)))
        frame = pl.DataFrame(rows, ["label", "verdict", "difference"], orient="row")
        good = pl.col("verdict") == "negligible"
        return frame.with_columns(
            difference_low=0.0,
            difference_high=0.0,
            parameters=1,
            good=good,
            fails_more=False,
            repeats=pl.col("label").is_in(repeats),
        )

    monkeypatch.setattr(shrinking, "_verdicts", verdicts)
    walk = lmzoo.shrink("DLM46", seeds=3)
    assert walk.filter("taken")["label"].to_list() == ["cut candidate_bias (5)", BOTH]
    assert walk["step"].max() == 3
    assert [len(study.points) for study in studies] == [9, 9, 8]
    again = walk.drop_nulls("repeated").select("label", "repeated").rows()
    assert again == [("cut candidate_bias (5)", True), (BOTH, True)]
    # Each step draws runs of its own.
    assert len({study.seed for study in studies}) == 3
    # All steps together.
    assert sum(spent) < 0.05
    assert spent[0] == pytest.approx(8 * 0.05 / 36)
    # New seeds that do not show the last cut undo it.
    repeats.remove(BOTH)
    walk = lmzoo.shrink("DLM46", seeds=3)
    report = shrinking.walk_report(walk, "DLM46", 0.02)
    assert report.answer == (
        "DLM46, cut candidate_bias (5), is at most 0.02 nats worse than the whole, with 95 % "
        f"confidence. New seeds do not repeat {BOTH}."
    )
    assert report.tables[0].rows[5][2] == "negligible, cut"
    repeats.remove("cut candidate_bias (5)")
    walk = lmzoo.shrink("DLM46", seeds=3)
    assert walk["step"].max() == 2
    assert "No part of DLM46 is cut" in shrinking.walk_report(walk, "DLM46", 0.02).answer


def test_a_good_point_loses_less_than_the_margin_and_fails_no_more_often(monkeypatch):
    """Whether it is negligible or better may be open."""
    points = [
        ("whole", None, True, 9, 1, None),
        ("better", "undecided", False, 9, 1, 0.0001),
        ("as good", "negligible", False, 10, 0, 0.0001),
        ("unsure", "undecided", False, 10, 0, 0.01),
        ("unsolved", "undecided", False, 8, 0, 0.0001),
        ("diverged", "undecided", False, 8, 2, 0.0001),
        ("unknown", "worse", False, 0, 0, None),
    ]
    names = ["label", "verdict", "reference", "solved", "confirm_diverged", "probability_worse"]
    frame = pl.DataFrame(points, names, orient="row")
    runs = 10 - pl.col("confirm_diverged")
    frame = frame.with_columns(runs=runs, confirm=10, is_baseline=False, difference=0.01)
    low = pl.when(pl.col("solved") > 0).then(0.0)
    frame = frame.with_columns(difference_low=low)
    content = SimpleNamespace(runs=None, events=None, study={"looks": [[10, 0.05, 10]]})
    monkeypatch.setattr(shrinking, "load_study", lambda _: content)
    seen = []

    def rank(runs, events, study):
        seen.append(study["looks"])
        return frame

    monkeypatch.setattr(shrinking, "rank_points", rank)
    judged = shrinking._verdicts(Path("runs"), 0.005)
    good = judged.filter("good").select("label", "verdict").rows()
    assert good == [("better", "not worse"), ("as good", "negligible")]
    assert judged.filter(label="unknown")["difference"].to_list() == [None]
    assert judged.filter("fails_more")["label"].to_list() == ["unsolved", "diverged", "unknown"]
    # A repetition has an error of 5 %, not the share of one comparison.
    assert judged.filter("repeats")["label"].to_list() == ["better", "as good", "unsure"]
    # A further look spends a tenth: a walk that is repeated with more seeds keeps its error.
    content.study["looks"].append([20, 0.005, 20])
    judged = shrinking._verdicts(Path("runs"), 0.0005)
    assert seen[-1] == [[10, 0.0005, 10], [20, pytest.approx(0.00005), 20]]
    # What an earlier look has shown stays.
    assert judged.filter("good")["label"].to_list() == ["as good"]
    # A task without a solution counts what diverged.
    without = frame.with_columns(solved=pl.lit(None, pl.Int64))
    monkeypatch.setattr(shrinking, "rank_points", lambda *_: without)
    judged = shrinking._verdicts(Path("runs"), 0.005)
    assert "unsolved" in judged.filter("good")["label"].to_list()


def test_a_row_without_cuts_is_refused():
    with pytest.raises(lmzoo.UserError, match="no named cuts"):
        lmzoo.shrink("rnn_lm")


def walk_of(*points):
    """Return a walk of points: step, label, verdict and whether the walk took it."""
    frame = pl.DataFrame(points, ["step", "label", "verdict", "taken"], orient="row")
    frame = frame.with_columns(difference=0.01, difference_low=-0.02, difference_high=0.04)
    fails_more = pl.col("verdict") == "undecided"
    return frame.with_columns(
        parameters=14272, fails_more=fails_more, repeated=pl.lit(None, pl.Boolean)
    )


def test_a_walk_that_cuts_nothing_says_so_and_what_is_undecided():
    walk = walk_of((1, "cut carry (6)", "worse-open", False), (1, BOTH, "undecided", False))
    report = shrinking.walk_report(walk, "DLM46", 0.02)
    assert report.answer.startswith("No part of DLM46 is cut")
    assert "Undecided in step 1: 1;" in report.answer
    expected = ["1", "cut carry (6)", "worse (size open)", "+0.010 ±0.030", "14,272"]
    assert report.tables[0].rows[0] == expected
    assert report.tables[0].rows[1][2] == "undecided, fails more often"


def test_the_command_takes_the_range_of_a_searched_field(monkeypatch):
    searched = []

    def walk(*_, search, **__):
        searched.append(search)
        return walk_of((1, BOTH, "worse", False))

    monkeypatch.setattr(shrinking, "shrink", walk)
    assert run_lmzoo("shrink", "DLM46") == 0
    assert run_lmzoo("shrink", "DLM46", "--search-space", "recipe.lr=0.01:0.1:log") == 0
    # The same as a study of the Python that the page shows.
    rate = FloatRange(0.01, 0.1, log=True)
    assert searched == [{"recipe.lr": None}, {"recipe.lr": rate}]
