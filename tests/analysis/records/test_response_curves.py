"""Fitted responses: the fit in the page is the one by which the sweep chose."""

from pathlib import Path

import polars as pl

from lmzoo.analysis.records.curve_data import tuned_settings
from lmzoo.analysis.records.load import load_study
from lmzoo.analysis.records.response_curves import response_curves

RECORDS = Path(__file__).parents[3] / "docs/results/records/gru_ablation-captions.parquet"


def test_the_best_setting_of_each_fit_is_the_chosen_one():
    folder = load_study(RECORDS)
    fitted = response_curves(folder, "recipe.lr")
    chosen = tuned_settings(folder, "recipe.lr").filter("chosen").select("label", "value")
    searched = [point for point in folder.study["points"] if point["search"]]
    assert chosen.height == len(searched)
    best = fitted.filter("best").select("label", "value")
    assert best.sort("label").equals(chosen.sort("label"))


def test_a_fit_is_near_the_losses_that_it_smooths():
    folder = load_study(RECORDS)
    tuned = tuned_settings(folder, "recipe.lr").filter(pl.col("status") == "finished")
    both = response_curves(folder, "recipe.lr").join(tuned, on=["label", "value"])
    distance = (both["fitted"] - both["loss"]).abs().median()
    assert 0 < distance < 0.05


def test_there_is_no_curve_for_a_field_that_was_not_searched_alone(toy):
    toy.add_point("full", [2.0, 2.1])
    toy.add_run("full", 10, 3.0, setting={"lr": 0.001})
    assert response_curves(load_study(toy.write()), "lr").is_empty()
