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
    toy.add_point("full", [2.0, 2.1, 2.3], parameters=100)
    toy.add_point("part", [2.5, None, 2.7], parameters=50)
    for seed, (lr, loss, status) in enumerate(
        [(0.001, 3.0, "finished"), (0.01, 2.2, "finished"), (0.1, 4.0, "pruned"), (1.0, None, None)]
    ):
        run = toy.add_run("full", 10 + seed, loss, status=status, setting={"lr": lr})
        if status == "pruned":
            cut_after_an_epoch(toy.records_path(run), status)
    toy.write()
    return load_study(toy.path)


def test_learning_curves_are_means_over_confirm_runs(folder):
    frame = learning_curves(folder)
    assert frame["label"].unique(maintain_order=True).to_list() == ["cut full", "cut part"]
    point = frame.filter(label="cut full", epoch=2).row(0, named=True)
    expected = mean_interval(np.array([2.0, 2.1, 2.3]) + 0.1)
    assert [point[name] for name in ("loss", "low", "high")] == pytest.approx(
        [*map(float, expected)]
    )
    assert point["runs"] == 3
    assert frame.filter(label="cut part")["runs"].to_list() == [2, 2, 2]
    half, own = (x.filter(label="cut full") for x in (learning_curves(folder, "sentence"), frame))
    assert half["loss"].to_list() == pytest.approx((own["loss"] / 2).to_list())


def test_a_single_seed_has_no_interval(toy):
    toy.add_point("full", [2.0])
    frame = learning_curves(load_study(toy.path))
    assert frame["low"].null_count() == frame.height == 3


def test_the_axis_of_the_search_leaves_out_the_losses_of_pruned_runs():
    rows = [("a", 0.1, 2.0, "finished"), ("a", 0.2, 2.5, "finished"), ("a", 0.3, 90.0, "pruned")]
    frame = pl.DataFrame(rows, ["label", "value", "loss", "status"], orient="row")
    frame = frame.with_columns(epoch=1, chosen=pl.lit(value=False))
    hues = Hues("label", {"a": "#000000"}, {"a": "reference"})
    spec = setting_chart(frame, hues, "lr", "loss", 1, log=False)
    scale = spec["layer"][1]["encoding"]["y"]["scale"]
    assert scale["clamp"]
    assert 2.5 < scale["domain"][1] < 3
    assert "at the top: 1 value above 2.8" in spec["title"]["subtitle"]


def test_a_search_of_many_settings_shows_some_and_says_so(monkeypatch):
    monkeypatch.setattr(setting_charts, "MOST_MARKS", 4)
    rows = [("a", 0.1 * i, 2.0 + i, "finished", i == 1) for i in range(1, 10)]
    columns = ["label", "value", "loss", "status", "chosen"]
    frame = pl.DataFrame(rows, columns, orient="row").with_columns(epoch=1)
    hues = Hues("label", {"a": "#000000"}, {"a": "reference"})
    spec = setting_chart(frame, hues, "lr", "loss", 1, log=False)
    sizes = [len(spec["datasets"][layer["data"]["name"]]) for layer in spec["layer"]]
    assert sizes == [3, 3, 1]  # the chosen one is always shown
    assert "one of 3 settings is shown" in spec["title"]["subtitle"]


def test_each_chart_contains_its_data(folder):
    charts = curve_charts(folder, rank_points(folder.runs, folder.events, folder.study))
    assert [*charts] == ["curves", "tuning-lr", "cost-parameters", "seeds"]
    spec = charts["tuning-lr"]
    layers, datasets = spec["layer"], spec.get("datasets", {})
    data = [layer["data"] for layer in layers]
    sizes = [len(datasets.get(d.get("name")) or d["values"]) for d in data]
    assert sizes == [2, 3, 1]  # joined by lines, with a loss, without a loss
    assert "at the top: 1 without a value" in spec["title"]["subtitle"]
    assert layers[1]["encoding"]["x"]["scale"]["type"] == "log"
    domain = layers[1]["encoding"]["color"]["scale"]["domain"]
    assert domain == ["cut full", "cut part"]  # the order of the ranking
