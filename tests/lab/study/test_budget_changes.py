"""A study whose budget grows and shrinks: earlier work counts, impossible requests are refused."""

import dataclasses
from contextlib import closing

import pytest

from lmzoo import Point
from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.store.records import STUDY, RunFolder, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import ReadOnlyStudyStore, StudyStore
from lmzoo.trainables.resolve import resolve
from tests.lab.sweep.local_sweep import outcome, sweep


def table(path) -> list[dict]:
    folder = load_study(path)
    columns = ["label", "epoch", "loss", "missing", "pruned", "diverged"]
    return rank_points(folder.runs, folder.events, folder.study).select(columns).to_dicts()


@pytest.fixture
def one_point(study):
    """A study of one point and the baselines."""
    return dataclasses.replace(study, points=study.points[:1], seeds=1)


@pytest.fixture
def sweep_epochs(corpus, corpus_fields, tmp_path):
    """Sweeps a study with this number of epochs; returns True if it is done."""

    def run(study, epochs: int, steps: int = 10**6) -> bool:
        changed = dataclasses.replace(study, epochs=epochs)
        return sweep(changed, corpus, corpus_fields, tmp_path / "toy", slots=2, steps=steps)

    return run


def test_returning_to_a_smaller_budget_restores_its_results(sweep_epochs, one_point, tmp_path):
    path = tmp_path / "toy"
    # The first rung is after the smaller budget.
    late = dataclasses.replace(one_point, grace=5, pruner="asha")
    assert sweep_epochs(late, 4)
    study, before = read_json(path / STUDY), table(path)
    assert {row["epoch"] for row in before} == {4}
    assert not any(row["pruned"] for row in before)
    assert sweep_epochs(late, 10)
    after = table(path)
    assert {row["epoch"] for row in after} == {10}
    assert any(row["pruned"] for row in after), "no run was pruned, so nothing was tested"
    longer = outcome(path)
    assert sweep_epochs(late, 4)
    assert outcome(path) == longer, "a run was trained again"
    assert read_json(path / STUDY) == study
    assert table(path) == before


def test_the_table_of_an_interrupted_longer_sweep_shows_which_points_are_missing(
    sweep_epochs, study, corpus, corpus_fields, tmp_path
):
    path = tmp_path / "toy"
    study = dataclasses.replace(study, points=study.points[:2], search={}, epochs=3)
    assert sweep_epochs(study, 1)
    before = table(path)
    assert not sweep_epochs(study, 3, steps=1)
    assert table(path) == before, "no run is tested at three epochs yet"
    assert not sweep_epochs(study, 3, steps=6)
    missing = {row["label"] for row in table(path) if row["missing"]}
    points = resolve(study, corpus, corpus_fields)
    planner = Planner(study, points, ReadOnlyStudyStore(path))
    assert missing == {point.point.display_label for point, *_ in planner.pending()} != set()
    assert {row["epoch"] for row in table(path)} == {3}
    assert sweep_epochs(study, 3)
    assert not any(row["missing"] for row in table(path))


def test_a_budget_below_every_tested_one_is_refused(sweep_epochs, one_point, tmp_path):
    path = tmp_path / "toy"
    assert sweep_epochs(one_point, 3)
    before = outcome(path)
    message = "^point '[^']+': a run was trained for 3 epochs and not tested at 2, "
    with pytest.raises(UserError, match=message) as caught:
        sweep_epochs(one_point, 2)
    assert "\n" not in str(caught.value)
    assert outcome(path) == before
    assert sweep_epochs(one_point, 3)
    assert outcome(path) == before


def test_a_run_that_a_larger_budget_pruned_counts_for_a_smaller_one(
    sweep_epochs, one_point, corpus, corpus_fields, tmp_path
):
    path = tmp_path / "toy"
    assert sweep_epochs(one_point, 2)
    chosen = read_json(path / STUDY)["chosen"]
    tuned = [folder for folder in map(RunFolder, path.glob("*/")) if _is_chosen(folder, chosen)]
    for folder in tuned:
        folder.append({"event": "end", "epoch": 3, "status": "pruned", "reason": "rung 3"})
    assert tuned  # two if the setting was measured again
    with closing(StudyStore(path)) as store:
        small = dataclasses.replace(one_point, epochs=2)
        assert Planner(small, resolve(small, corpus, corpus_fields), store).done
    assert read_json(path / STUDY)["chosen"] == chosen


def _is_chosen(folder: RunFolder, chosen: dict) -> bool:
    config = folder.config or {}
    best = chosen.get(config.get("point", {}).get("id"), {})
    return config.get("stage") == "tune" and config["setting"] == best["setting"]


def test_tune_runs_of_a_count_model_count_for_every_budget(sweep_epochs, study, tmp_path):
    """A count model has one epoch, whose number is the budget of its first sweep."""
    row = {"order": 3, "smoothing": "add_alpha"}
    smoothed = Point("add-alpha", "ngram_count", row, search={"model.alpha": None})
    study = dataclasses.replace(study, points=(smoothed,), fields={"corpus.length": 10})
    assert sweep_epochs(study, 2)
    with pytest.raises(UserError, match=r"point '[^']+': .* not tested at 1, "):
        sweep_epochs(study, 1)  # refused in the confirm stage, so the tune runs have counted
