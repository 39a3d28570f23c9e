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
from tests.lab.analysis.toy_study import change_lines

GRU = RECORDS / "gru_ablation-captions.parquet"


@pytest.mark.parametrize("name", ["gru_ablation-captions", "lstm_variants-captions"])
def test_the_chosen_runs_have_the_losses_of_the_ranking(name):
    path = RECORDS / f"{name}.parquet"
    chosen = lmzoo.runs(path).filter("chosen").group_by("label")
    means = pl.col("test", "seconds", "accuracy").mean().name.prefix("run_")
    of_runs = chosen.agg(means, count=pl.col("test").count())
    both = lmzoo.rank(path).join(of_runs, on="label")
    assert both.height > 5
    assert (both["count"] == both["runs"]).all()
    for ours, theirs in (("test", "loss"), ("seconds", "seconds"), ("accuracy", "accuracy")):
        differences = both[f"run_{ours}"] - both[theirs]
        assert (differences.drop_nulls().abs() < 1e-6).all(), ours


@pytest.fixture(scope="module")
def gru_runs():
    return lmzoo.runs(GRU)


def test_the_last_epoch_of_a_curve_is_that_of_the_run(gru_runs):
    by_run = lmzoo.curves(GRU).sort("epoch").group_by("run")
    last = by_run.agg(pl.col("epoch", "valid").last(), pl.col("seconds").sum())
    both = gru_runs.join(last, on="run", suffix="_last")
    # No run is without a curve.
    assert both.height == gru_runs.height == 133
    assert (both["epochs"] == both["epoch"]).all()
    assert (both["valid"] == both["valid_last"]).all()
    assert (both["seconds"] - both["seconds_last"]).abs().max() < 1e-9


def test_a_pruned_run_has_fewer_epochs(gru_runs):
    # The budget is ten epochs.
    pruned = gru_runs.filter(status="pruned")
    assert pruned["epochs"].max() < 10


def test_runs_are_in_the_order_of_the_points(gru_runs):
    labels = gru_runs["label"].unique(maintain_order=True).to_list()
    assert labels[:2] == ["wild type", "cut input_to_gate (0)"]


def test_only_the_runs_of_the_reference_are_marked_so(gru_runs):
    assert set(gru_runs.filter("reference")["label"]) == {"wild type"}


@pytest.fixture
def runs(toy):
    """Runs of two points, of which one diverged, and one is of the search."""
    toy.add_points(
        """
        full: 3.0  3.1
        gate: 3.2  -
        """
    )
    toy.add_run("gate", 9, 2.0, setting={"lr": 0.1})
    return lmzoo.runs(toy.write())


def test_a_run_is_in_its_folder(runs):
    for folder in runs["folder"]:
        assert (Path(folder) / "config.json").exists()


def test_a_diverged_run_and_one_of_the_search_have_no_test(runs):
    gate = runs.filter(label="cut gate")
    assert gate["stage"].to_list() == ["tune", "confirm", "confirm"]
    assert gate["test"].to_list() == [None, 3.2, None]
    assert gate["status"][2] == "diverged"


def test_a_setting_has_a_column(runs):
    assert runs.filter(stage="tune")["lr"].to_list() == [0.1]


@pytest.fixture
def shared_runs(toy):
    """Runs of a point that has the chosen ones of another, which has left the study."""
    # Two points with the same confirm runs.
    shared = toy.add_point("full", [3.0, 3.1])
    toy.add_points("gate: 3.2 3.3")
    toy.study_json["chosen"]["gate"]["runs"] = shared
    toy.add_unconfirmed("later")
    del toy.study_json["points"][0]
    return lmzoo.runs(toy.write())


def test_runs_that_two_points_share_are_in_both(shared_runs):
    chosen = shared_runs.filter("chosen", label="cut gate")
    assert chosen["test"].to_list() == [3.0, 3.1]
    assert shared_runs.height == 6


def test_runs_of_a_point_that_went_have_no_label(shared_runs):
    assert shared_runs.filter(point="full")["label"].to_list() == [None, None]


def test_a_metric_to_maximize_has_its_own_sign(toy):
    toy.study_json["asked"] = {"direction": "maximize", "metric": "bleu"}
    toy.add_points("full: -30.0 -31.0")
    path = toy.write()
    last = lmzoo.curves(path).filter(epoch=3)
    assert lmzoo.runs(path)["test"].to_list() == [30.0, 31.0]
    assert last["valid"].to_list() == [30.0, 31.0]


def test_a_curve_has_the_accuracies_of_validation(toy):
    toy.add_points("full: 3.0")
    path = toy.records_path("full-confirm-1")
    change_lines(path, "epoch", valid_accuracy=0.75, valid_sequence_accuracy=0.25)
    found = lmzoo.curves(toy.path)
    assert found["accuracy"].to_list() == [0.75] * 3
    assert found["sequence_accuracy"].to_list() == [0.25] * 3


@pytest.fixture
def cut_in_part(toy):
    toy.add_points(
        """
        full: 2.0  2.01  1.99
        part: 2.5  2.51  2.49
        """
    )
    return toy.write()


@pytest.fixture
def ranking(cut_in_part):
    return lmzoo.rank(cut_in_part)


def test_a_ranking_is_the_frame_of_its_report(cut_in_part, ranking):
    assert ranking.equals(study_ranking(cut_in_part).frame)


def test_a_ranking_shows_question_doubt_and_answer(ranking):
    question, doubt, _, answer, *_ = str(ranking).splitlines()
    assert str(ranking) == repr(ranking)
    assert question == "Which path can be cut?"
    falling = "The curves still fall: the last doubling of the epochs brought 0.15 nats"
    assert doubt.startswith(falling)
    assert answer.startswith("Worse than 'cut full', unsure")


def test_a_ranking_fits_a_terminal(ranking):
    *text, _ = str(ranking).splitlines()  # the command at the end is one line
    assert max(map(len, text)) <= WIDTH


def test_a_ranking_in_a_notebook_has_its_picture(ranking):
    page = ranking._repr_html_()
    (picture,) = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]*)">', page)
    assert "var(--worse-open)" in base64.b64decode(picture).decode()
    assert "&#x27;cut full&#x27;" in page


def test_a_part_of_a_ranking_is_a_frame(ranking):
    assert str(ranking.select("label", "loss")).startswith("shape: (2, 2)")


def test_a_study_is_found_by_its_object(cut_in_part, tmp_path, monkeypatch):
    path = cut_in_part
    shutil.copytree(path, tmp_path / "runs/mine")
    monkeypatch.chdir(tmp_path)
    study = lmzoo.Study(name="mine", question="Does it hold?", points=())
    assert lmzoo.rank(study).equals(lmzoo.rank(path))
    assert lmzoo.curves(study).equals(lmzoo.curves(path))
    assert lmzoo.runs(study)["folder"][0].startswith("runs/mine/")
    assert lmzoo.plan(study, effect=0.1) == lmzoo.plan(path, effect=0.1)


def test_a_study_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for function in (lmzoo.runs, lmzoo.curves, lmzoo.rank):
        with pytest.raises(UserError, match="no study 'gru'; runs has no study"):
            function("gru")
