"""Which runs stand beside a printed row: those that have ended, at one epoch, each once."""

import json
import shutil

import pytest
import typer
from typer.testing import CliRunner

from lmzoo import zoo
from lmzoo.analysis.load import load
from lmzoo.analysis.published_rows import TABLES
from lmzoo.analysis.reproduction import reproduction
from lmzoo.cli.published import main
from lmzoo.contract import MODELS

WORD = TABLES[0]
COMMON = {
    "corpus": {"name": "multi30k_en"},
    "length": 20,
    "unit": "word",
    "recipe": {"accumulate": "step"},
    "model": MODELS.write(zoo.config("DLM46", width=128)),
}


@pytest.fixture
def runs(made):
    """Three runs of one row after 20 epochs, of mean sentence losses 5.0, 5.1 and 5.2."""
    made.epochs = 20
    return made.point("DLM46", [10.0, 10.2, 10.4], **COMMON)


def cut(made, run, *, after, end=None):
    """Leave of a run's records those up to an epoch, and perhaps this end."""
    lines = [json.loads(line) for line in made.records(run).read_text().splitlines()]
    kept = [line for line in lines if line["event"] == "epoch" and line["epoch"] <= after]
    if end:
        kept.append({"event": "end", "epoch": after, "status": end, "reason": ""})
    made.records(run).write_text("".join(json.dumps(line) + "\n" for line in kept))


def more(made, run, *, to, loss: float | None = 1.0, end=None):
    """Add epochs to a run, as a longer budget does."""
    start = max(json.loads(s)["epoch"] for s in made.records(run).read_text().splitlines())
    epochs = [
        {"event": "epoch", "epoch": epoch, "valid_token": loss, "valid_sentence": loss}
        for epoch in range(start + 1, to + 1)
    ]
    ends = [{"event": "end", "epoch": to, "status": end}] if end else []
    with made.records(run).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in (*epochs, *ends))


def wild(*paths):
    frame = reproduction(WORD, [load(path) for path in paths])
    row = next(row for row in frame.to_dicts() if row["row"] == "DLM46")
    return {name: row[f"sound{name}"] for name in ("", "_seeds", "_diverged", "_epoch")}


def test_what_has_not_ended_does_not_count(made, runs):
    cut(made, runs[0], after=5)
    made.records(runs[1]).unlink()
    assert wild(made.path) == pytest.approx({"": 5.2, "_seeds": 1, "_diverged": 0, "_epoch": 20})
    cut(made, runs[2], after=20, end="failed")
    assert wild(made.path)["_seeds"] == 0


def test_a_run_that_goes_on_counts_as_it_had_ended(made):
    made.epochs = 10
    for run in made.point("DLM46", [10.0, 10.2], **COMMON):
        more(made, run, to=15)
    assert wild(made.path) == pytest.approx({"": 5.05, "_seeds": 2, "_diverged": 0, "_epoch": 10})


def test_runs_of_one_setting_stand_at_one_epoch(made, runs):
    cut(made, runs[0], after=7, end="finished")
    cut(made, runs[2], after=3, end="diverged")
    assert wild(made.path) == pytest.approx({"": 5.1, "_seeds": 2, "_diverged": 1, "_epoch": 20})


def test_what_diverges_behind_the_printed_epoch_had_a_loss_there(made, runs):
    more(made, runs[0], to=25, loss=None, end="diverged")
    assert wild(made.path)["_diverged"] == 0
    assert wild(made.path)[""] == pytest.approx(5.1)


def test_a_run_that_two_studies_hold_is_one_run(made, runs):
    other = made.path.parent / "other"
    shutil.copytree(made.path, other)
    once = wild(made.path)
    assert once["_seeds"] == 3
    assert wild(made.path, other) == wild(other, made.path) == once
    cut(made, runs[0], after=8, end="finished")  # the other study went further
    assert wild(made.path, other) == wild(other, made.path) == once


def test_of_several_folders_those_without_a_study_are_named_and_left_out(made, runs):
    app = typer.Typer()
    app.command()(main)
    single = made.path.parent / "single"
    single.mkdir()
    (made.path.parent / "notes.txt").write_text("x")
    everything = sorted(map(str, made.path.parent.iterdir()))
    options = ["--format", "json", "--table", WORD.name]
    done = CliRunner().invoke(app, [*everything, *options])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert sum(row["sound_seeds"] for row in rows) == 3
    assert [line.rsplit("/", 1)[1] for line in done.stderr.splitlines()] == ["notes.txt", "single"]
    for alone in ([str(single)], [str(single), str(single)], [str(made.path), "nowhere"]):
        refused = CliRunner().invoke(app, alone)
        assert refused.exit_code == 2
        assert len(refused.stderr.splitlines()) == 1
