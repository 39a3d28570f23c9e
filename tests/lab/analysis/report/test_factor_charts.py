"""The heat map of a factorial and the importance of settings are drawn where a study has them."""

import itertools

import numpy as np
import polars as pl
import pytest

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.report.factor_charts import importances
from lmzoo.lab.analysis.report.figure import figures

COST = {"rms": 0.0, "none": 0.1, "tanh": 0.0, "relu": 0.04, "": 0.0, "gate": 0.02}


def cost_of(*levels):
    """Return the loss of a point: two factors interact."""
    cost = 2.0 + sum(COST[level] for level in levels)
    if {"none", "relu"} <= {*levels}:
        cost += 0.3
    return cost


def charts_of(toy, designs):
    for norm, act, cut in designs:
        cuts = []
        if cut:
            cuts.append(cut)
        model = {"name": "m", "norm": norm, "act": act, "cell": {"name": "gru", "cuts": cuts}}
        cost = cost_of(norm, act, cut)
        toy.add_point(f"{norm}-{act}-{cut}", [cost - 0.01, cost + 0.01], model=model)
    toy.study_json["reference"] = toy.study_json["points"][0]["id"]
    toy.write()
    return figures(load_study(toy.path), study_ranking(toy.path).frame)


DESIGNS = [*itertools.product(("rms", "none"), ("tanh", "relu"), ("", "gate"))]


@pytest.fixture
def heat_map(toy):
    """The fields of the heat map of all designs by their levels."""
    (fields,) = charts_of(toy, DESIGNS)["factors"]["datasets"].values()
    return {(field["across"], field["down"]): field for field in fields}


@pytest.mark.parametrize(
    ("across", "down", "levels"),
    [
        ("norm=none", "act=relu", {"none", "relu"}),
        ("act=tanh", "gate=yes", {"tanh", "gate"}),
        ("norm=rms", "norm=rms", {"rms"}),
    ],
)
def test_a_field_of_the_heat_map_is_the_mean_of_the_points_with_both_levels(
    heat_map, across, down, levels
):
    costs = [cost_of(*design) for design in DESIGNS if levels <= {*design}]
    field = heat_map[across, down]
    assert field["loss"] == pytest.approx(np.mean(costs))
    assert field["points"] == len(costs)


def test_two_levels_of_one_factor_have_no_field(heat_map):
    assert ("norm=rms", "norm=none") not in heat_map


@pytest.mark.parametrize("left_out", [1, 7])
def test_a_study_without_a_combination_has_no_heat_map(toy, left_out):
    charts = charts_of(toy, DESIGNS[:left_out] + DESIGNS[left_out + 1 :])
    assert "factors" not in charts


def tuning_runs(count=30):
    draw = np.random.default_rng(0)
    rate = draw.uniform(-3, 0, count)
    width = draw.uniform(8, 64, count)
    loss = (rate + 1.5) ** 2 + 0.002 * width
    loss[0] = 300.0  # a run that blew up
    frame = pl.DataFrame({"lr": 10**rate, "width": width, "loss": loss, "depth": 1})
    return frame.with_columns(label=pl.lit("a"), status=pl.lit("finished"))


def test_the_setting_that_decides_the_loss_is_the_most_important():
    shares = importances(tuning_runs(), ["lr", "width", "depth"])
    assert [*shares] == ["lr", "width"]
    assert shares["lr"] > 0.5
    assert shares["width"] < 0.2


@pytest.mark.parametrize(("count", "second"), [(19, "width"), (30, "depth")])
def test_few_runs_or_one_setting_have_no_importance(count, second):
    assert importances(tuning_runs(count), ["lr", second]) == {}


def test_a_study_without_a_search_has_no_chart_of_importance(toy):
    assert "importance" not in charts_of(toy, DESIGNS)
