"""The walk to the smallest cell: what it cuts, when it ends, and its error."""

import polars as pl
import pytest

import lmzoo
from lmzoo import FloatRange, shrinking
from tests.cli.run_lmzoo import run_lmzoo

BOTH = "cut gate_bias (2) + candidate_bias (5)"
FREE = {"cut candidate_bias (5)": -0.001, "cut gate_bias (2)": 0.002, BOTH: 0.004}
"""Differences of the cuts that are negligible."""


def test_a_walk_cuts_what_is_negligible_with_one_error(monkeypatch):
    studies = []
    spent = []
    monkeypatch.setattr(shrinking, "run_study", lambda study, **_: studies.append(study))

    def verdicts(folder, error):
        # The first point is the one that is walked from.
        _, *points = studies[-1].points
        spent.append(error * len(points))
        rows = []
        for point in points:
            verdict = "worse"
            if point.label in FREE:
                verdict = "negligible"
            rows.append((point.label, verdict, FREE.get(point.label, 0.1)))
        frame = pl.DataFrame(rows, ["label", "verdict", "difference"], orient="row")
        return frame.with_columns(difference_low=0.0, difference_high=0.0, parameters=1)

    monkeypatch.setattr(shrinking, "_verdicts", verdicts)
    walk = lmzoo.shrink("DLM46", seeds=3)
    assert walk.filter("taken")["label"].to_list() == ["cut candidate_bias (5)", BOTH]
    assert walk["step"].max() == 3
    assert [len(study.points) for study in studies] == [9, 8, 7]
    # Each step draws runs of its own.
    assert len({study.seed for study in studies}) == 3
    # All steps together.
    assert sum(spent) < 0.05
    assert spent[0] == pytest.approx(8 * 0.05 / 36)


def test_a_row_without_cuts_is_refused():
    with pytest.raises(lmzoo.UserError, match="no named cuts"):
        lmzoo.shrink("rnn_lm")


def walk_of(*points):
    """Return a walk of points: step, label, verdict and whether the walk took it."""
    frame = pl.DataFrame(points, ["step", "label", "verdict", "taken"], orient="row")
    frame = frame.with_columns(difference=0.01, difference_low=-0.02, difference_high=0.04)
    return frame.with_columns(parameters=14272)


def test_a_walk_that_cuts_nothing_says_so_and_what_is_undecided():
    walk = walk_of((1, "cut carry (6)", "worse-open", False), (1, BOTH, "undecided", False))
    report = shrinking.walk_report(walk, "DLM46", 0.02)
    assert report.answer.startswith("No part of DLM46 is cut")
    assert "Undecided in step 1: 1;" in report.answer
    expected = ["1", "cut carry (6)", "worse (size open)", "+0.010 ±0.030", "14,272"]
    assert report.tables[0].rows[0] == expected


def test_a_walk_names_the_smallest_cell_first():
    walk = walk_of((1, BOTH, "negligible", True), (2, "whole", "worse", False))
    report = shrinking.walk_report(walk, "DLM46", 0.02)
    assert report.answer == f"DLM46, {BOTH}, is within 0.02 nats of the whole with 95 % confidence."
    assert report.tables[0].rows[0][2] == "negligible, cut"


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
