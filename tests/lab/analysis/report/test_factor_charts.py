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
    both = 0.3 * ({"none", "relu"} <= {*levels})
    return 2.0 + sum(COST[level] for level in levels) + both


def charts_of(toy, designs):
    for norm, act, cut in designs:
        name = "-".join((norm, act, cut))
        cell = {"name": "gru", "cuts": [cut] * bool(cut)}
        model = {"name": "m", "norm": norm, "act": act, "cell": cell}
        toy.add_point(name, [cost_of(norm, act, cut) + x for x in (-0.01, 0.01)], model=model)
    toy.study_json["reference"] = toy.study_json["points"][0]["id"]
    toy.write()
    return figures(load_study(toy.path), study_ranking(toy.path).frame)


DESIGNS = [*itertools.product(("rms", "none"), ("tanh", "relu"), ("", "gate"))]


def test_a_field_of_the_heat_map_is_the_mean_of_the_points_with_both_levels(toy):
    spec = charts_of(toy, DESIGNS)["factors"]
    (rows,) = spec["datasets"].values()
    found = {(row["across"], row["down"]): row for row in rows}
    means = {
        ("norm=none", "act=relu"): (["none", "relu", x] for x in ("", "gate")),
        ("act=tanh", "gate=yes"): (["tanh", "gate", x] for x in ("rms", "none")),
        ("norm=rms", "norm=rms"): (own for own in DESIGNS if own[0] == "rms"),
    }  # fmt: skip
    for pair, designs in means.items():
        expected = [cost_of(*levels) for levels in designs]
        assert found[pair]["loss"] == pytest.approx(np.mean(expected))
        assert found[pair]["points"] == len(expected)
    assert ("norm=rms", "norm=none") not in found


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
    assert shares["lr"] > 0.5 > 0.2 > shares["width"]


def test_few_runs_or_one_setting_have_no_importance(toy):
    assert importances(tuning_runs(19), ["lr", "width"]) == {}
    assert importances(tuning_runs(), ["lr", "depth"]) == {}
    assert "importance" not in charts_of(toy, DESIGNS)
