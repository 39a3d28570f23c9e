"""`lmzoo.runs` and `lmzoo.curves`: all facts of a study, from which tables are made."""

import base64
import re
import shutil
from pathlib import Path

import polars as pl
import pytest

import lmzoo
from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.ranking_table import WIDTH, study_ranking
from tests.lab.analysis.recorded import RECORDS

GRU = RECORDS / "gru_ablation-captions.parquet"


@pytest.mark.parametrize("name", ["gru_ablation-captions", "lstm_variants-captions"])
def test_the_chosen_runs_have_the_losses_of_the_ranking(name):
    path = RECORDS / f"{name}.parquet"
    chosen = lmzoo.runs(path).filter("chosen")
    means = pl.col("test", "seconds", "accuracy").mean()
    own = chosen.group_by("label").agg(means, count=pl.col("test").count())
    both = lmzoo.rank(path).join(own, on="label")
    assert both.height > 5
    columns = {"test": "loss", "seconds_right": "seconds", "accuracy_right": "accuracy"}
    for ours, theirs in columns.items():
        assert both.filter((pl.col(ours) - pl.col(theirs)).abs() > 1e-6).is_empty(), ours
    assert (both["count"] == both["runs"]).all()


def test_the_last_epoch_of_a_curve_is_that_of_the_run():
    runs, curves = lmzoo.runs(GRU), lmzoo.curves(GRU)
    last = curves.sort("epoch").group_by("run").agg(
        pl.col("epoch", "train", "valid").last(), pl.col("seconds").sum()
    )  # fmt: skip
    both = runs.join(last, on="run", suffix="_last")
    assert both.height == runs.height == 133
    assert (both["epochs"] == both["epoch"]).all()
    assert (both["valid"] == both["valid_last"]).all()
    assert (both["seconds"] - both["seconds_last"]).abs().max() < 1e-9
    assert both.filter(pl.col("status") == "pruned")["epochs"].max() < 10
    labels = runs["label"].unique(maintain_order=True).to_list()
    assert labels[:2] == ["wild type", "cut input_to_gate (0)"]
    assert runs.filter("reference")["label"].unique().to_list() == ["wild type"]


def test_a_run_is_in_its_folder_and_a_diverged_one_has_no_test(toy):
    toy.add_points(full=[3.0, 3.1], gate=[3.2, None])
    toy.add_run("gate", 9, 2.0, setting={"lr": 0.1})
    runs = lmzoo.runs(toy.write())
    assert all((Path(folder) / "config.json").exists() for folder in runs["folder"])
    gate = runs.filter(pl.col("label") == "cut gate")
    assert gate["stage"].to_list() == ["tune", "confirm", "confirm"]
    assert gate["test"].to_list() == [None, 3.2, None]
    assert gate["lr"].to_list()[0] == 0.1
    assert gate["status"].to_list()[2] == "diverged"


def test_runs_that_two_points_share_and_points_that_went(toy):
    shared = toy.add_point("full", [3.0, 3.1])
    toy.add_point("gate", [3.2, 3.3])
    toy.study_json["chosen"]["gate"]["runs"] = shared
    toy.study_json["points"].append({"id": "later", "label": "later", "aliases": []})
    del toy.study_json["points"][0]
    runs = lmzoo.runs(toy.write())
    assert runs.filter(pl.col("label") == "cut gate", "chosen")["test"].to_list() == [3.0, 3.1]
    assert runs.filter(pl.col("point") == "full")["label"].to_list() == [None, None]
    assert runs.height == 6


def test_a_metric_to_maximize_has_its_own_sign(toy):
    toy.study_json["asked"] = {"direction": "maximize", "metric": "bleu"}
    toy.add_point("full", [-30.0, -31.0])
    path = toy.write()
    assert lmzoo.runs(path)["test"].to_list() == [30.0, 31.0]
    assert lmzoo.curves(path).filter(pl.col("epoch") == 3)["valid"].to_list() == [30.0, 31.0]


def test_a_ranking_is_a_frame_that_shows_its_answer(toy):
    toy.add_points(full=[2.0, 2.01, 1.99], part=[2.5, 2.51, 2.49])
    ranking = lmzoo.rank(toy.write())
    assert ranking.equals(study_ranking(toy.path).frame)
    assert str(ranking) == repr(ranking)
    question, doubt, _rest, answer = str(ranking).splitlines()[:4]
    assert question == "Which path can be cut?"
    said = "The curves still fall: the last doubling of the epochs brought 0.15 nats"
    assert doubt.startswith(said)
    assert answer.startswith("Worse than 'cut full', unsure")
    *text, _command = str(ranking).splitlines()  # a command is one line
    assert max(map(len, text)) <= WIDTH
    page = ranking._repr_html_()
    (picture,) = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]*)">', page)
    assert "var(--worse-open)" in base64.b64decode(picture).decode()
    assert "&#x27;cut full&#x27;" in page
    assert str(ranking.select("label", "loss")).startswith("shape: (2, 2)")


def test_a_study_is_found_by_its_object(toy, tmp_path, monkeypatch):
    toy.add_points(full=[2.0, 2.01, 1.99], part=[2.5, 2.51, 2.49])
    path = toy.write()
    shutil.copytree(path, tmp_path / "runs/mine")
    monkeypatch.chdir(tmp_path)
    study = lmzoo.Study(name="mine", question="Does it hold?", points=())
    for function in (lmzoo.rank, lmzoo.curves):
        assert function(study).equals(function(path))
    assert lmzoo.runs(study)["folder"][0].startswith("runs/mine/")
    assert lmzoo.plan(study, effect=0.1) == lmzoo.plan(path, effect=0.1)


def test_a_study_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for function in (lmzoo.runs, lmzoo.curves, lmzoo.rank):
        with pytest.raises(UserError, match="no study 'gru'; runs has no study"):
            function("gru")
