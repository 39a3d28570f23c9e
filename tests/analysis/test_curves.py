"""The numbers behind the curves, and that each becomes a picture."""

import json

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from lmzoo.analysis.curve_data import costs, learning, settings, survival
from lmzoo.analysis.load import load
from lmzoo.analysis.ranking import ranking
from lmzoo.analysis.statistics import mean_interval
from lmzoo.cli import curves as command
from lmzoo.store.records import RECORDS


@pytest.fixture
def folder(made):
    """Two points of three seeds, one of which diverged; four settings, two of them cut short."""
    made.point("full", [2.0, 2.1, 2.3], parameters=100)
    made.point("part", [2.5, None, 2.7], parameters=50)
    for seed, (lr, loss, status) in enumerate(
        [(0.001, 3.0, "finished"), (0.01, 2.2, "finished"), (0.1, 4.0, "pruned"), (1.0, None, None)]
    ):
        run = made.run("full", 10 + seed, loss, status=status, setting={"lr": lr})
        if status == "pruned":
            path = made.path / run / RECORDS
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            kept = [r for r in lines if r["event"] != "epoch" or r["epoch"] == 1]
            path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    made.write()
    return load(made.path)


def ranked(folder):
    return ranking(folder.runs, folder.events, folder.study)


def test_learning_curves_are_means_over_the_confirm_seeds(folder):
    frame = learning(folder)
    assert frame["label"].unique(maintain_order=True).to_list() == ["cut full", "cut part"]
    one = frame.filter((pl.col("label") == "cut full") & (pl.col("epoch") == 2)).row(0, named=True)
    expected = mean_interval(np.array([2.0, 2.1, 2.3]) + 0.1)
    assert (one["loss"], one["low"], one["high"]) == pytest.approx(tuple(map(float, expected)))
    assert one["runs"] == 3
    assert frame.filter(label="cut part")["runs"].to_list() == [2, 2, 2]
    half = learning(folder, "sentence").filter(label="cut full")
    assert half["loss"].to_list() == pytest.approx(
        [loss / 2 for loss in frame.filter(label="cut full")["loss"]]
    )


def test_a_single_seed_has_no_band(made):
    made.point("full", [2.0])
    frame = learning(load(made.path))
    assert frame["low"].null_count() == frame.height == 3


def test_every_setting_tried_is_shown_as_it_ended(folder):
    frame = settings(folder, "lr")
    assert frame["value"].to_list() == [0.001, 0.01, 0.1, 1.0]
    assert frame["status"].to_list() == ["finished", "finished", "pruned", "diverged"]
    assert frame["epoch"].to_list() == [3, 3, 1, 3]
    assert frame["loss"].to_list() == [3.0, 2.2, 4.2, None]
    assert settings(folder, "model.width").is_empty()


def test_survival_counts_every_setting(folder):
    frame = survival(folder)
    assert frame["left"].to_list() == [4, 3, 3]
    assert frame["tuned"].to_list() == [4, 4, 4]


def test_costs_are_those_of_a_confirm_run(folder):
    frame = costs(folder, ranked(folder))
    assert frame["label"].to_list() == ["cut full", "cut part"]
    assert frame["parameters"].to_list() == [100, 50]
    assert frame["seconds"].to_list() == [1.5, 1.5]


def test_each_curve_holds_its_numbers(folder):
    charts = command.curves(folder, ranked(folder))
    assert [*charts] == ["learning", "setting-lr", "parameters", "time", "survival"]
    specs = {name: chart.to_dict() for name, chart in charts.items()}
    drawn, kept = specs["setting-lr"]["layer"], specs["setting-lr"].get("datasets", {})
    sizes = [len(kept.get(d.get("name")) or d["values"]) for d in (one["data"] for one in drawn)]
    assert sizes == [2, 3, 1]  # joined by lines, with a loss, without
    assert "1 without a loss" in specs["setting-lr"]["title"]["subtitle"]
    assert drawn[1]["encoding"]["x"]["scale"]["type"] == "log"
    domain = drawn[1]["encoding"]["color"]["scale"]["domain"]
    assert domain == ["cut full", "cut part"]  # the ranking's order


@pytest.mark.parametrize(("format", "start"), [("png", b"\x89PNG"), ("html", b"<!DOCTYPE html>")])
def test_the_command_writes_one_file_each(folder, made, tmp_path, format, start):
    app = typer.Typer()
    app.command()(command.main)
    place = tmp_path / "out"
    done = CliRunner().invoke(app, [str(made.path), "--out", str(place), "--format", format])
    assert done.exit_code == 0, done.output
    files = sorted(place.iterdir())
    assert len(files) == 5
    for file in files:
        data = file.read_bytes()
        assert data.lstrip().startswith(start)
        assert b"<script src=" not in data
    refused = CliRunner().invoke(app, [str(made.path), "--format", "gif"])
    assert (refused.exit_code, "no format 'gif'" in refused.output) == (2, True)
