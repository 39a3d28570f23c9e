"""The heat map of a factorial and the importance of settings are drawn where a study has them."""

import itertools

import numpy as np
import polars as pl
import pytest

from lmzoo.lab.analysis.report.factor_charts import importances
from tests.lab.analysis.report.toy_charts import charts_of

COST = {"rms": 0.0, "none": 0.1, "tanh": 0.0, "relu": 0.04, "": 0.0, "gate": 0.02}


def cost_of(*levels):
    """Return the loss of a point: two factors interact."""
    cost = 2.0 + sum(COST[level] for level in levels)
    if {"none", "relu"} <= {*levels}:
        cost += 0.3
    return cost


def charts_of_designs(toy, designs):
    for design in designs:
        norm, act, cut = design
        cuts = []
        if cut:
            cuts.append(cut)
        cell = {"name": "gru", "cuts": cuts}
        model = {"name": "m", "norm": norm, "act": act, "cell": cell}
        cost = cost_of(*design)
        toy.add_point("-".join(design), [cost - 0.01, cost + 0.01], model=model)
    first = toy.study_json["points"][0]
    toy.study_json["reference"] = first["id"]
    return charts_of(toy)


NORMS = ("rms", "none")
ACTIVATIONS = ("tanh", "relu")
DESIGNS = list(itertools.product(NORMS, ACTIVATIONS, ("", "gate")))


@pytest.fixture
def heat_map(toy):
    """The fields of the heat map of all designs by their levels."""
    chart = charts_of_designs(toy, DESIGNS)["factors"]
    (fields,) = chart["datasets"].values()
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
    costs = []
    for design in DESIGNS:
        if levels <= set(design):
            costs.append(cost_of(*design))
    field = heat_map[across, down]
    assert field["loss"] == pytest.approx(np.mean(costs))
    assert field["points"] == len(costs)


def test_two_levels_of_one_factor_have_no_field(heat_map):
    assert ("norm=rms", "norm=none") not in heat_map


@pytest.mark.parametrize("left_out", [1, 7])
def test_a_study_without_a_combination_has_no_heat_map(toy, left_out):
    designs = DESIGNS.copy()
    del designs[left_out]
    assert "factors" not in charts_of_designs(toy, designs)


def tuning_runs(count=30):
    draw = np.random.default_rng(0)
    rate = draw.uniform(-3, 0, count)
    width = draw.uniform(8, 64, count)
    # The rate changes it by 2.25, the width by 0.11.
    loss = (rate + 1.5) ** 2 + 0.002 * width
    loss[0] = 300.0  # a run that blew up
    columns = {"lr": 10**rate, "width": width, "loss": loss}
    columns |= {"depth": 1, "label": "a", "status": "finished"}
    return pl.DataFrame(columns)


def test_the_setting_that_decides_the_loss_is_the_most_important():
    shares = importances(tuning_runs(), ["lr", "width", "depth"])
    assert [*shares] == ["lr", "width"]
    assert shares["lr"] > 0.5
    assert shares["width"] < 0.2


@pytest.mark.parametrize(("count", "second"), [(19, "width"), (30, "depth")])
def test_few_runs_or_one_setting_have_no_importance(count, second):
    assert importances(tuning_runs(count), ["lr", second]) == {}


def test_a_study_without_a_search_has_no_chart_of_importance(toy):
    assert "importance" not in charts_of_designs(toy, DESIGNS)
