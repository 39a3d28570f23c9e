"""The runs of a published row: ended, at one epoch, each counted once."""

import json
import shutil

import pytest
from published_rows import TABLES
from published_runs import compare_with_published

from lmzoo import zoo
from lmzoo.contract import MODELS
from lmzoo.lab.analysis.load import load_study

WORD = TABLES[0]
COMMON = {
    "corpus": {"name": "multi30k_en"},
    "length": 20,
    "unit": "word",
    "recipe": {"accumulate": "step"},
    "model": MODELS.dump(zoo.config("DLM46", width=128)),
}


@pytest.fixture
def runs(toy):
    """Three runs of one row after 20 epochs, with sentence losses 5.0, 5.1 and 5.2."""
    toy.epochs = 20
    return toy.add_point("DLM46", [10.0, 10.2, 10.4], **COMMON)


def truncate(toy, run, *, after, end=None):
    """Remove a run's records after an epoch, and append an end event with the status `end`."""
    lines = [json.loads(line) for line in toy.records_path(run).read_text().splitlines()]
    remaining = [line for line in lines if line["event"] == "epoch" and line["epoch"] <= after]
    if end:
        remaining.append({"event": "end", "epoch": after, "status": end, "reason": ""})
    toy.records_path(run).write_text("".join(json.dumps(line) + "\n" for line in remaining))


def wild(*paths):
    frame = compare_with_published(WORD, [load_study(path) for path in paths])
    row = next(row for row in frame.to_dicts() if row["row"] == "DLM46")
    return {name: row[f"sound{name}"] for name in ("", "_seeds", "_diverged", "_epoch")}


def test_a_run_that_has_not_ended_does_not_count(toy, runs):
    truncate(toy, runs[0], after=5)
    toy.records_path(runs[1]).unlink()
    assert wild(toy.path) == pytest.approx({"": 5.2, "_seeds": 1, "_diverged": 0, "_epoch": 20})
    truncate(toy, runs[2], after=20, end="failed")
    assert wild(toy.path)["_seeds"] == 0


def test_runs_of_one_setting_are_compared_at_one_epoch(toy, runs):
    truncate(toy, runs[0], after=7, end="finished")
    truncate(toy, runs[2], after=3, end="diverged")
    assert wild(toy.path) == pytest.approx({"": 5.1, "_seeds": 2, "_diverged": 1, "_epoch": 20})


def test_a_run_of_two_studies_counts_once(toy, runs):
    other = toy.path.parent / "other"
    shutil.copytree(toy.path, other)
    once = wild(toy.path)
    assert once["_seeds"] == 3
    assert wild(toy.path, other) == wild(other, toy.path) == once
    truncate(toy, runs[0], after=8, end="finished")  # the other study went further
    assert wild(toy.path, other) == wild(other, toy.path) == once
