"""The data of the curves, and their charts."""

import numpy as np
import polars as pl
import pytest

from lmzoo.lab.analysis.load import learning_curves, load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.analysis.report import setting_chart as setting_charts
from lmzoo.lab.analysis.report.colours import Hues
from lmzoo.lab.analysis.report.curve_charts import curve_charts
from lmzoo.lab.analysis.report.setting_chart import setting_chart
from lmzoo.lab.statistics.intervals import mean_interval
from tests.lab.analysis.toy_study import cut_after_an_epoch


@pytest.fixture
def folder(toy):
    """Two points with three seeds, one diverged; four settings, one pruned and one diverged."""
    toy.add_points("full: 2.0 2.1 2.3", parameters=100)
    toy.add_points("part: 2.5 - 2.7", parameters=50)
    settings = {3.0: 0.001, 2.2: 0.01, 4.0: 0.1, None: 1.0}
    for seed, (loss, rate) in enumerate(settings.items(), start=10):
        toy.add_run("full", seed, loss, setting={"lr": rate})
    cut_after_an_epoch(toy.records_path("full-tune-12"), "pruned")
    return load_study(toy.write())


@pytest.fixture
def curves(folder):
    return learning_curves(folder)


def test_learning_curves_are_in_the_order_of_the_points(curves):
    labels = curves["label"].unique(maintain_order=True)
    assert labels.to_list() == ["cut full", "cut part"]


def test_learning_curves_are_means_over_confirm_runs(curves):
    second = curves.filter(label="cut full", epoch=2)
    # One epoch before the last, each loss is larger by 0.1.
    interval = mean_interval([2.1, 2.2, 2.4])
    found = second.select("loss", "low", "high").row(0)
    assert found == pytest.approx(tuple(map(float, interval)))
    assert second["runs"].item() == 3


def test_a_diverged_run_is_in_no_curve(curves):
    part = curves.filter(label="cut part")
    assert part["runs"].to_list() == [2, 2, 2]


def test_learning_curves_have_the_unit(folder, curves):
    """In the toy study, a sentence has half of the loss of a token."""
    of_sentence = learning_curves(folder, "sentence")
    halves = curves["loss"] / 2
    assert of_sentence["loss"].to_list() == pytest.approx(halves.to_list())


def test_a_single_seed_has_no_interval(toy):
    toy.add_points("full: 2.0")
    frame = learning_curves(load_study(toy.path))
    assert frame["low"].null_count() == frame.height == 3


def chart_of_search(rates, losses, **columns):
    """Return the chart of the settings of one point."""
    settings = pl.DataFrame({"value": rates, "loss": losses} | columns)
    frame = settings.with_columns(label=pl.lit("a"), epoch=1)
    hues = Hues("label", {"a": "#000000"}, {"a": "reference"})
    return setting_chart(frame, hues, "lr", "loss", 1, log=False)


def sizes_of(chart):
    """Return how many marks each layer has."""
    sizes = []
    for layer in chart["layer"]:
        data = layer["data"]
        if "name" in data:
            sizes.append(len(chart["datasets"][data["name"]]))
        else:
            sizes.append(len(data["values"]))
    return sizes


def test_the_axis_of_the_search_leaves_out_the_losses_of_pruned_runs():
    chart = chart_of_search(
        [0.1, 0.2, 0.3],
        [2.0, 2.5, 90.0],
        status=["finished", "finished", "pruned"],
        chosen=[False] * 3,
    )
    scale = chart["layer"][1]["encoding"]["y"]["scale"]
    _, highest = scale["domain"]
    assert scale["clamp"]
    assert 2.5 < highest < 3
    assert "at the top: 1 value above 2.8" in chart["title"]["subtitle"]


def test_a_search_of_many_settings_shows_some_and_says_so(monkeypatch):
    # Of nine settings, every third one is shown.
    monkeypatch.setattr(setting_charts, "MOST_MARKS", 4)
    numbers = np.arange(1, 10)
    chart = chart_of_search(
        0.1 * numbers,
        2.0 + numbers,
        status=["finished"] * 9,
        chosen=numbers == 1,
    )
    # The chosen one is always shown.
    assert sizes_of(chart) == [3, 3, 1]
    assert "one of 3 settings is shown" in chart["title"]["subtitle"]


@pytest.fixture
def charts(folder):
    ranked = rank_points(folder.runs, folder.events, folder.study)
    return curve_charts(folder, ranked)


def test_a_study_has_charts_of_curves_search_costs_and_seeds(charts):
    assert [*charts] == ["curves", "tuning-lr", "cost-parameters", "seeds"]


def test_the_chart_of_the_search_has_settings_with_and_without_a_loss(charts):
    chart = charts["tuning-lr"]
    assert sizes_of(chart) == [2, 3, 1]  # joined by lines, with a loss, without a loss
    assert "at the top: 1 without a value" in chart["title"]["subtitle"]


def test_the_chart_of_the_search_has_the_axis_and_the_order_of_the_study(charts):
    encoding = charts["tuning-lr"]["layer"][1]["encoding"]
    assert encoding["x"]["scale"]["type"] == "log"
    assert encoding["color"]["scale"]["domain"] == ["cut full", "cut part"]
