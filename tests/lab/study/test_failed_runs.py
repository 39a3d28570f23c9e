"""A failed tune run is missing data: its points wait for it, and nothing is decided without it."""

import dataclasses
import hashlib
from contextlib import closing

import pytest

from lmzoo.base.search_space import FloatRange
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.trainables.resolve import resolve
from tests.lab.sweep.fake_runs import open_fake_run
from tests.lab.sweep.local_sweep import report


@pytest.fixture
def drive(study, corpus, corpus_fields):
    """Sweeps without Ray; `fails` says which runs end as failed before they train."""
    space = {"recipe.lr": FloatRange(1e-3, 7e-2, log=True)}
    study = dataclasses.replace(study, search=space, samples=5, epochs=6)

    def sweep(path, fails=lambda run: False, nodes=()) -> dict:
        with closing(StudyStore(path)) as store:
            planner = Planner(study, resolve(study, corpus, corpus_fields), store)
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


def share(run, trial: int) -> float:
    return hashlib.md5(f"{run.id}/{trial}".encode()).digest()[0] / 256


@pytest.mark.parametrize("trial", range(3))
def test_failures_and_a_resume_choose_what_an_undisturbed_sweep_does(drive, tmp_path, trial):
    undisturbed = drive(tmp_path / "undisturbed")
    assert len(undisturbed) == 3
    disturbed = drive(tmp_path / "x", lambda r: r.stage == "tune" and share(r, trial) < 0.3)
    assert disturbed == {}, "all points share a search space, and wait for the failed runs"
    assert drive(tmp_path / "x") == undisturbed


def test_a_failure_that_repeats_counts(drive, tmp_path):
    broken = []

    def fails(run) -> bool:
        if not broken:
            broken.append(run.id)
        return run.id in broken

    assert drive(tmp_path, fails) == {}
    assert len(drive(tmp_path, fails)) == 3, "the setting cannot be trained"


def test_a_failure_on_two_machines_counts_in_the_same_sweep_and_in_the_next(drive, tmp_path):
    broken = []

    def fails(run) -> bool:
        if not broken:
            broken.append(run.id)
        return run.id in broken

    chosen = drive(tmp_path, fails, nodes=("host (1a)", "host (2b)"))
    assert len(chosen) == 3
    assert drive(tmp_path, fails) == chosen


@pytest.mark.parametrize(
    ("failures", "ended"),
    [
        ([], False),
        ([("a", 1)], False),
        ([("a", 1), ("b", 1)], False),
        ([("a", 2), ("b", 1)], False),
        ([("b", 1), ("a", 1), ("a", 1)], True),
        ([("a", 2)], True),
    ],
)
def test_a_failure_ends_a_run_if_it_repeats_or_occurs_on_two_machines(failures, ended):
    run = PlannedRun("", "point", "tune", 0, {}, 1, status="failed")
    for reason, nodes in failures:
        run.add_failure(reason, "hg"[:nodes])
    assert run.ended == ended
