"""Failed tune runs are missing data; settings that the model refuses count as tried."""

import dataclasses
import json
from contextlib import closing
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
    study = dataclasses.replace(study, search=space, samples=5, epochs=6)

    def sweep(path, fails=lambda run: False, nodes=(), **changes) -> dict:
        changed = dataclasses.replace(study, **changes)
        with closing(StudyStore(path)) as store:
            planner = Planner(changed, resolve(study, corpus, corpus_fields), store)
            while not planner.done:
                for planned in planner.ready():
                    planner.start(planned)
                    if fails(planned):
                        planned.nodes = [*nodes]
                        planner.end(planned.id, "failed", "no space left")
                        continue
                    run = open_fake_run(store, planned, corpus)
                    going = True
                    while going:
                        next(run.train(planned.budget), None)
                        going = report(planner, planned, run)
            planner.write_failures()
        chosen = read_json(path / STUDY)["chosen"]
        return {point: own for point, own in chosen.items() if own["setting"]}

    return sweep


@pytest.mark.parametrize("trial", range(2))
def test_failures_and_a_resume_choose_what_an_undisturbed_sweep_does(drive, tmp_path, trial):
    undisturbed = drive(tmp_path / "undisturbed")
    assert len(undisturbed) == 3
    disturbed = drive(
        tmp_path / "x",
        lambda r: r.stage == "tune" and md5(f"{r.id}/{trial}".encode()).digest()[0] < 77,
    )
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
    later = started[started.index(("tune", 9)) :]
    assert max(index for _, index in later) < 16, "none tries more before the others have ended"
    assert {stage for stage, _ in later} == {"tune"}, "the setting may be given up"
    assert drive(tmp_path / "x", max_seeds=20) == undisturbed


@pytest.mark.parametrize("nodes", [(), ("host (1a)", "host (2b)")])
def test_a_failure_counts_that_repeats_in_a_later_sweep_or_on_two_machines(drive, tmp_path, nodes):
    broken = []

    def fails(run) -> bool:
        if not broken:
            broken.append(run.id)
        return run.id in broken

    chosen = drive(tmp_path, fails, nodes=nodes)
    assert len(chosen) == (3 if nodes else 0)
    again = drive(tmp_path, fails, nodes=nodes)
    assert len(again) == 3, "the setting cannot be trained"
    assert not nodes or again == chosen


def test_an_epoch_that_is_trained_again_is_compared_with_those_before_it():
    run = PlannedRun("", "point", "tune", 0, {}, 3)
    for epoch, loss in ((1, 3.0), (2, 2.0), (2, 2.5), (3, 2.7)):
        run.add_epoch(epoch, loss)
    assert run.curve == {1: 3.0, 2: 2.5, 3: 2.5}


def test_a_failure_ends_a_run_if_it_repeats():
    """Reasons -> whether it does; on two machines a failure counts twice."""
    for failures, ended in {"": 0, "a": 0, "ab": 0, "aab": 0, "baa": 1, "aa": 1, "A": 1}.items():
        run = PlannedRun("", "point", "tune", 0, {}, 1, status="failed")
        for reason in failures:
            run.add_failure(reason, "hg" if reason.isupper() else "h")
        assert run.ended == bool(ended), failures


CODES = {"model.emission.aggregate": Choice(("sigmoid_l1", "code_l1"))}
CODES |= {"model.emission.size": IntRange(1, 4)}
"""The model refuses `code_l1` unless the size is 1."""


@pytest.fixture
def codes(study):
    """A study whose search suggests valid and refused settings from its second generation on."""
    fields = {**study.fields, "model.emission.groups": 3}
    fields.pop("model.emission.components")
    return dataclasses.replace(
        study, points=(Point("codes", "hamming_emission"),), fields=fields, search=CODES,
        samples=8, epochs=2, seed=1,
    )  # fmt: skip


def suggested(path) -> list[dict]:
    return [json.loads(line)["setting"] for line in (path / SETTINGS).read_text().splitlines()]


def is_valid(setting: dict) -> bool:
    return setting["model.emission.aggregate"] != "code_l1" or setting["model.emission.size"] == 1


def test_the_search_continues_after_a_refused_setting(
    codes, corpus, corpus_fields, tmp_path, caplog
):
    path = tmp_path / "toy"
    assert sweep(codes, corpus, corpus_fields, path)
    tried = suggested(path)
    refused = [setting for setting in tried if not is_valid(setting)]
    assert refused, "no setting was refused, so nothing was tested"
    assert len(tried) == 8
    configs = [read_json(p) for p in path.glob("*/config.json")]
    trained = [c["setting"] for c in configs if c["stage"] == "tune"]
    assert all(is_valid(setting) for setting in trained)
    assert all(setting in trained for setting in tried if is_valid(setting))
    (chosen,) = [c["setting"] for c in read_json(path / STUDY)["chosen"].values() if c["setting"]]
    assert is_valid(chosen)
    warnings = [text for text in caplog.messages if "is not trained" in text]
    assert len(warnings) == len(refused)
    assert all("aggregate=code_l1 needs size=1" in text for text in warnings)


def test_a_search_space_without_a_valid_setting_is_refused_and_nothing_is_written(
    codes, corpus, corpus_fields, tmp_path
):
    nowhere = {**CODES, "model.emission.aggregate": Choice(("code_l1",))}
    nowhere["model.emission.size"] = IntRange(2, 4)
    wrong = dataclasses.replace(codes, search=nowhere)
    message = r"^point 'codes': --search-space .*'code_l1' is not accepted: .*code_l1 needs size=1$"
    with pytest.raises(UserError, match=message):
        sweep(wrong, corpus, corpus_fields, tmp_path / "toy")
    assert not (tmp_path / "toy" / SETTINGS).exists()


def test_a_point_of_which_every_run_fails_does_not_hide_the_others(drive, tmp_path):
    first = []

    def fails(run) -> bool:
        first[:] = first or [run.label]
        return run.label == first[0]

    chosen = drive(tmp_path, fails)
    assert len(chosen) == 2
    assert drive(tmp_path, fails) == chosen, "later sweeps count it as a point without a setting"
