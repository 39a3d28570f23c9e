"""The charts of single points: seeds, and costs with their Pareto front."""

import itertools

import polars as pl
import pytest

from lmzoo.lab.analysis.report.point_charts import front_of
from tests.lab.analysis.report.toy_charts import charts_of


@pytest.fixture
def study(toy):
    toy.add_points("full: 3.0 3.1", parameters=200)
    toy.add_points("small: 3.2 3.3", parameters=100)
    toy.add_points("large: 3.05 3.15", parameters=400)
    return toy


def values_of(chart):
    """Return the rows of all data of a chart."""
    return list(itertools.chain(*chart["datasets"].values()))


def test_each_seed_is_a_dot_at_its_loss(study):
    chart = charts_of(study)["seeds"]
    found = {}
    for row in values_of(chart):
        if "seed" in row:
            name = row["label"]
            found[f"{name}, seed {row['seed']}"] = row["loss"]
    expected = {
        "cut full, seed 1": 3.0,
        "cut full, seed 2": 3.1,
        "cut small, seed 1": 3.2,
        "cut small, seed 2": 3.3,
        "cut large, seed 1": 3.05,
        "cut large, seed 2": 3.15,
    }
    assert found == pytest.approx(expected)


def test_only_costs_in_which_points_differ_have_a_chart(study):
    costs = [name for name in charts_of(study) if name.startswith("cost")]
    assert costs == ["cost-parameters"]


@pytest.mark.parametrize(("higher", "labels"), [(False, "acd"), (True, "ab")])
def test_the_front_has_the_points_that_none_beats_for_less(higher, labels):
    columns = {
        "label": list("abcd"),
        "cost": [1, 2, 3, 4],
        "loss": [3.0, 3.5, 2.0, 1.0],
        "higher_is_better": [higher] * 4,
    }
    front = front_of(pl.DataFrame(columns), "cost")
    assert "".join(front["label"]) == labels


def test_a_model_of_counts_is_named_below_a_chart_of_costs(study):
    study.add_points("counts: 9.0 9.0", parameters=0)
    study.study_json["points"][-1]["baseline"] = True
    chart = charts_of(study)["cost-parameters"]
    labels = {row["label"] for row in values_of(chart)}
    assert labels == {"cut full", "cut small", "cut large"}
    assert "not shown: cut counts" in chart["title"]["subtitle"]
