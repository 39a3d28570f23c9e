"""The charts of single points: seeds, and costs with their Pareto front."""

import polars as pl
import pytest

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.report.figure import figures
from lmzoo.lab.analysis.report.point_charts import front_of

LOSSES = {"full": [3.0, 3.1], "small": [3.2, 3.3], "large": [3.05, 3.15]}
PARAMETERS = {"full": 200, "small": 100, "large": 400}


@pytest.fixture
def charts(toy):
    for name, losses in LOSSES.items():
        toy.add_point(name, losses, parameters=PARAMETERS[name])
    return figures(load_study(toy.path), study_ranking(toy.path).frame)


def values_of(chart):
    return [row for data in chart["datasets"].values() for row in data]


def test_each_seed_is_a_dot_at_its_loss(charts):
    dots = [row for row in values_of(charts["seeds"]) if "seed" in row]
    found = {(row["label"], row["seed"]): row["loss"] for row in dots}
    expected = {
        (f"cut {name}", seed): loss
        for name, losses in LOSSES.items()
        for seed, loss in enumerate(losses, start=1)
    }
    assert found == pytest.approx(expected)


def test_only_costs_in_which_points_differ_have_a_chart(charts):
    assert {name for name in charts if name.startswith("cost")} == {"cost-parameters"}


@pytest.mark.parametrize(("higher", "labels"), [(False, "acd"), (True, "ab")])
def test_the_front_has_the_points_that_none_beats_for_less(higher, labels):
    points = pl.DataFrame(
        {"label": list("abcd"), "cost": [1, 2, 3, 4], "loss": [3.0, 3.5, 2.0, 1.0]}
    ).with_columns(higher_is_better=pl.lit(higher))
    assert "".join(front_of(points, "cost")["label"]) == labels


def test_a_model_of_counts_is_named_below_a_chart_of_costs(toy):
    for name, losses in LOSSES.items():
        toy.add_point(name, losses, parameters=PARAMETERS[name])
    toy.add_point("counts", [9.0, 9.0], parameters=0)
    toy.study_json["points"][-1]["baseline"] = True
    chart = figures(load_study(toy.write()), study_ranking(toy.path).frame)["cost-parameters"]
    assert {row["label"] for row in values_of(chart)} == {f"cut {name}" for name in LOSSES}
    assert "not shown: cut counts" in chart["title"]["subtitle"]
