"""Failed tune runs are missing data; settings that the model refuses count as tried."""

import json
from contextlib import closing
from dataclasses import replace
from hashlib import md5

import pytest

from lmzoo import Point
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.lab.store.records import SETTINGS, STUDY, read_json
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.trainables.resolve import resolve
from tests.lab.sweep.fake_runs import open_fake_run
from tests.lab.sweep.local_sweep import report, sweep

from .test_tuning import every_choice


@pytest.fixture
def drive(study, corpus, corpus_fields):
    """Sweeps without Ray; `fails` says which runs end as failed before they train."""
    space = {"recipe.lr": FloatRange(1e-3, 7e-2, log=True)}
    study = replace(study, search=space, samples=5, epochs=6)
    points = resolve(study, corpus, corpus_fields)

    def sweep(path, fails=lambda run: False, nodes=(), **changes) -> dict:
        changed = replace(study, **changes)
        with closing(StudyStore(path)) as store:
            planner = Planner(changed, points, store)
            while not planner.done:
                for planned in planner.ready():
                    planner.start(planned)
                    if fails(planned):
                        planned.nodes = list(nodes)
                        planner.end(planned.id, "failed", "no space left")
                    else:
                        train(open_fake_run(store, planned, corpus), planner, planned)
            planner.write_failures()
        return chosen_in(path)

    return sweep


def train(run, planner, planned):
    going = True
    while going:
        next(run.train(planned.budget), None)
        going = report(planner, planned, run)


def chosen_in(path) -> dict:
    """Return what was chosen for the points that have a search space."""
    found = {}
    for point, chosen in read_json(path / STUDY)["chosen"].items():
        if chosen["setting"]:
            found[point] = chosen
    return found


@pytest.mark.parametrize("trial", range(2))
def test_failures_and_a_resume_choose_what_an_undisturbed_sweep_does(drive, tmp_path, trial):
    undisturbed = drive(tmp_path / "undisturbed")
    assert len(undisturbed) == 3

    def fails(run) -> bool:
        if run.stage != "tune":
            return False
        digest = md5(f"{run.id}/{trial}".encode()).digest()
        # Three runs of ten.
        return digest[0] < 77

    disturbed = drive(tmp_path / "x", fails)
    assert disturbed == {}, "all points share a search space, and wait for the failed runs"
    assert drive(tmp_path / "x") == undisturbed


def test_a_further_setting_that_fails_is_tried_again_by_the_next_sweep(
    drive, tmp_path, monkeypatch
):
    monkeypatch.setattr("lmzoo.lab.study.planner.uncertain_choices", every_choice)
    undisturbed = drive(tmp_path / "undisturbed", max_seeds=20)
    started = []

    def fails(run) -> bool:
        started.append((run.stage, run.index))
        return started[-1] == ("tune", 9)

    drive(tmp_path / "x", fails, max_seeds=20)
    assert started.count(("tune", 9)) == 3, "each point tries a further setting, which fails"
    begin = started.index(("tune", 9))
    stages, indices = zip(*started[begin:], strict=True)
    assert max(indices) < 16, "none tries more before the others have ended"
    assert set(stages) == {"tune"}, "the setting may be given up"
    assert drive(tmp_path / "x", max_seeds=20) == undisturbed


@pytest.fixture
def first_fails():
    """Whether a run is the first one that was started."""
    broken = []

    def fails(run) -> bool:
        if not broken:
            broken.append(run.id)
        return run.id in broken

    return fails


def test_a_failure_counts_that_repeats_in_a_later_sweep(drive, tmp_path, first_fails):
    assert drive(tmp_path, first_fails) == {}
    again = drive(tmp_path, first_fails)
    assert len(again) == 3, "the setting cannot be trained"


def test_a_failure_counts_that_repeats_on_two_machines(drive, tmp_path, first_fails):
    nodes = ("host (1a)", "host (2b)")
    chosen = drive(tmp_path, first_fails, nodes=nodes)
    assert len(chosen) == 3
    assert drive(tmp_path, first_fails, nodes=nodes) == chosen


def test_an_epoch_that_is_trained_again_is_compared_with_those_before_it():
    run = PlannedRun("", "point", "tune", 0, {}, 3)
    run.add_epoch(1, 3.0)
    run.add_epoch(2, 2.0)
    run.add_epoch(2, 2.5)
    run.add_epoch(3, 2.7)
    # Each epoch has the lowest loss up to it, the second one that of its last training.
    assert run.curve == {1: 3.0, 2: 2.5, 3: 2.5}


@pytest.fixture
def failed():
    return PlannedRun("", "point", "tune", 0, {}, 1, status="failed")


@pytest.mark.parametrize("reasons", ["aa", "baa"])
def test_a_failure_ends_a_run_if_it_repeats(failed, reasons):
    for reason in reasons:
        failed.add_failure(reason, "h")
    assert failed.ended


@pytest.mark.parametrize("reasons", ["", "a", "ab", "aab"])
def test_other_failures_do_not_end_a_run(failed, reasons):
    for reason in reasons:
        failed.add_failure(reason, "h")
    assert not failed.ended


def test_a_failure_on_two_machines_ends_a_run(failed):
    failed.add_failure("a", "hg")
    assert failed.ended


CODES = {"model.emission.aggregate": Choice(("sigmoid_l1", "code_l1"))}
CODES |= {"model.emission.size": IntRange(1, 4)}
"""The model refuses `code_l1` unless the size is 1."""


@pytest.fixture
def codes(study):
    """A study whose search suggests valid and refused settings from its second generation on."""
    fields = study.fields | {"model.emission.groups": 3}
    del fields["model.emission.components"]
    return replace(
        study,
        points=(Point("codes", "hamming_emission"),),
        fields=fields,
        search=CODES,
        samples=8,
        epochs=2,
        seed=1,
    )


def suggested(path) -> list[dict]:
    lines = (path / SETTINGS).read_text().splitlines()
    return [json.loads(line)["setting"] for line in lines]


def is_valid(setting: dict) -> bool:
    if setting["model.emission.aggregate"] != "code_l1":
        return True
    return setting["model.emission.size"] == 1


def test_the_search_continues_after_a_refused_setting(
    codes, corpus, corpus_fields, tmp_path, caplog
):
    path = tmp_path / "toy"
    assert sweep(codes, corpus, corpus_fields, path)
    trained = []
    for file in path.glob("*/config.json"):
        config = read_json(file)
        if config["stage"] == "tune":
            trained.append(config["setting"])
    refused = 0
    tried = suggested(path)
    for setting in tried:
        assert (setting in trained) == is_valid(setting)
        refused += not is_valid(setting)
    assert refused, "no setting was refused, so nothing was tested"
    assert len(tried) == 8
    assert all(map(is_valid, trained))
    (chosen,) = chosen_in(path).values()
    assert is_valid(chosen["setting"])
    said = 0
    for text in caplog.messages:
        if "is not trained" in text:
            said += 1
            assert "aggregate=code_l1 needs size=1" in text
    assert said == refused


def test_a_search_space_without_a_valid_setting_is_refused_and_nothing_is_written(
    codes, corpus, corpus_fields, tmp_path
):
    nowhere = {
        "model.emission.aggregate": Choice(("code_l1",)),
        "model.emission.size": IntRange(2, 4),
    }
    wrong = replace(codes, search=nowhere)
    message = r"^point 'codes': --search-space .*'code_l1' is not accepted: .*code_l1 needs size=1$"
    with pytest.raises(UserError, match=message):
        sweep(wrong, corpus, corpus_fields, tmp_path / "toy")
    assert not (tmp_path / "toy" / SETTINGS).exists()


def test_a_point_of_which_every_run_fails_does_not_hide_the_others(drive, tmp_path):
    labels = []

    def fails(run) -> bool:
        labels.append(run.label)
        return run.label == labels[0]

    chosen = drive(tmp_path, fails)
    assert len(chosen) == 2
    assert drive(tmp_path, fails) == chosen, "later sweeps count it as a point without a setting"
