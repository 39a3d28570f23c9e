"""A budget that grows and shrinks: what is done for it counts, what cannot be made up is told."""

import dataclasses
from contextlib import closing

import pytest

from lmzoo.analysis.load import load
from lmzoo.analysis.ranking import ranking
from lmzoo.errors import UserError
from lmzoo.store.records import STUDY, RunFolder, read_json
from lmzoo.sweep import Point
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import ReadOnlyStudyStore, StudyStore

from .byhand import outcome, sweep


def table(path) -> list[dict]:
    folder = load(path)
    columns = ["label", "epoch", "loss", "missing", "pruned", "diverged"]
    return ranking(folder.runs, folder.events, folder.study).select(columns).to_dicts()


@pytest.fixture
def one(study):
    """A study of one point and its floors."""
    return dataclasses.replace(study, points=study.points[:1], seeds=1)


@pytest.fixture
def at(corpus, corpus_fields, tmp_path):
    """Sweep the study with so many epochs; whether it came to the end."""

    def run(study, epochs: int, steps: int = 10**6) -> bool:
        asked = dataclasses.replace(study, epochs=epochs)
        return sweep(asked, corpus, corpus_fields, tmp_path / "toy", slots=2, steps=steps)

    return run


def test_back_at_the_smaller_budget_everything_is_as_it_was(at, one, tmp_path):
    path, late = tmp_path / "toy", dataclasses.replace(one, grace=5)  # the first rung is behind it
    assert at(late, 4)
    study, before = read_json(path / STUDY), table(path)
    assert {row["epoch"] for row in before} == {4}
    assert not any(row["pruned"] for row in before)
    assert at(late, 10)
    after = table(path)
    assert {row["epoch"] for row in after} == {10}
    assert any(row["pruned"] for row in after), "nothing was pruned: the test sees nothing"
    longer = outcome(path)
    assert at(late, 4)
    assert outcome(path) == longer, "there was nothing to do"
    assert read_json(path / STUDY) == study
    assert table(path) == before


def test_of_a_longer_sweep_that_was_cut_off_the_table_lacks_what_is_owed(
    at, study, corpus, corpus_fields, tmp_path
):
    path = tmp_path / "toy"
    study = dataclasses.replace(study, points=study.points[:2], search={}, epochs=3)
    assert at(study, 1)
    before = table(path)
    assert not at(study, 3, steps=1)
    assert table(path) == before, "no run is tested at three epochs yet"
    assert not at(study, 3, steps=6)
    lacking = {row["label"] for row in table(path) if row["missing"]}
    agenda = Planner(study, resolve(study, corpus, corpus_fields), corpus, ReadOnlyStudyStore(path))
    assert lacking == {point.point.label for point, *_ in agenda.owed()} != set()
    assert {row["epoch"] for row in table(path)} == {3}
    assert at(study, 3)
    assert not any(row["missing"] for row in table(path))


def test_a_smaller_budget_than_any_that_was_tested_is_refused(at, one, tmp_path):
    path = tmp_path / "toy"
    assert at(one, 3)
    before = outcome(path)
    refused = "^point 'wild type': a run was trained for 3 epochs and not tested at 2, "
    with pytest.raises(UserError, match=refused) as caught:
        at(one, 2)
    assert "\n" not in str(caught.value)
    assert outcome(path) == before
    assert at(one, 3)
    assert outcome(path) == before


def test_what_a_larger_budget_pruned_counts_for_a_smaller_one(
    at, one, corpus, corpus_fields, tmp_path
):
    path = tmp_path / "toy"
    assert at(one, 2)
    chosen = read_json(path / STUDY)["chosen"]
    tuned = [folder for folder in map(RunFolder, path.glob("*/")) if _is_chosen(folder, chosen)]
    for folder in tuned:
        folder.append({"event": "end", "epoch": 3, "status": "pruned", "reason": "rung 3"})
    assert len(tuned) == 1
    with closing(StudyStore(path)) as store:
        small = dataclasses.replace(one, epochs=2)
        agenda = Planner(small, resolve(small, corpus, corpus_fields), corpus, store)
        assert agenda.done
    assert read_json(path / STUDY)["chosen"] == chosen


def _is_chosen(folder: RunFolder, chosen: dict) -> bool:
    config = folder.config or {}
    best = chosen.get(config.get("point", {}).get("id"), {})
    return config.get("stage") == "tune" and config["setting"] == best["setting"]


def test_what_only_counts_was_tuned_whatever_the_budget(at, study, tmp_path):
    """It has but one epoch, the last of the budget that it was first asked for."""
    row = {"order": 3, "smoothing": "add_alpha"}
    smoothed = Point("add-alpha", "ngram_count", row, search={"model.alpha": None})
    study = dataclasses.replace(study, points=(smoothed,), fields={"corpus.length": 10})
    assert at(study, 2)
    with pytest.raises(UserError, match=r"point 'add-alpha': .* not tested at 1, "):
        at(study, 1)  # so it has chosen among what was tuned
