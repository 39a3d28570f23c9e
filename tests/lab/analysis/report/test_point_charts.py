"""The charts of single points: seeds, and costs with their Pareto front."""

import itertools

import polars as pl
import pytest

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.report.figure import figures
from lmzoo.lab.analysis.report.point_charts import front_of

LOSSES = {"full": [3.0, 3.1], "small": [3.2, 3.3], "large": [3.05, 3.15]}
PARAMETERS = {"full": 200, "small": 100, "large": 400}


@pytest.fixture
def study(toy):
    for name, losses in LOSSES.items():
        toy.add_point(name, losses, parameters=PARAMETERS[name])
    return toy


def charts_of(study):
    path = study.write()
    return figures(load_study(path), study_ranking(path).frame)


def values_of(chart):
    """Return the rows of all data of a chart."""
    return list(itertools.chain(*chart["datasets"].values()))


def test_each_seed_is_a_dot_at_its_loss(study):
    found = {}
    for row in values_of(charts_of(study)["seeds"]):
        if "seed" in row:
            found[row["label"], row["seed"]] = row["loss"]
    assert len(found) == 6
    for name, losses in LOSSES.items():
        for seed, loss in enumerate(losses, start=1):
            assert found[f"cut {name}", seed] == pytest.approx(loss)


def test_only_costs_in_which_points_differ_have_a_chart(study):
    costs = [name for name in charts_of(study) if name.startswith("cost")]
    assert costs == ["cost-parameters"]


@pytest.mark.parametrize(("higher", "labels"), [(False, "acd"), (True, "ab")])
def test_the_front_has_the_points_that_none_beats_for_less(higher, labels):
    columns = {"label": list("abcd"), "cost": [1, 2, 3, 4], "loss": [3.0, 3.5, 2.0, 1.0]}
    points = pl.DataFrame(columns).with_columns(higher_is_better=pl.lit(higher))
    assert "".join(front_of(points, "cost")["label"]) == labels


def test_a_model_of_counts_is_named_below_a_chart_of_costs(study):
    study.add_points("counts: 9.0 9.0", parameters=0)
    study.study_json["points"][-1]["baseline"] = True
    chart = charts_of(study)["cost-parameters"]
    labels = {row["label"] for row in values_of(chart)}
    assert labels == {"cut full", "cut small", "cut large"}
    assert "not shown: cut counts" in chart["title"]["subtitle"]
