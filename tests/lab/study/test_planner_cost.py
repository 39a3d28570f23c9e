"""The cost of a planner does not grow with what the store already contains."""

import dataclasses
from collections import Counter
from contextlib import closing

import pytest

from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import RECORDS, STUDY
from lmzoo.lab.study import planner as planners
from lmzoo.lab.study.planned_run import Answer
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.point_planner import PointPlanner
from lmzoo.lab.study.study_store import SETTINGS, StudyStore
from lmzoo.trainables.resolve import resolve
from tests.lab.sweep.local_sweep import sweep


@pytest.fixture
def points(study, corpus, corpus_fields):
    return [p for p in resolve(study, corpus, corpus_fields) if p.search_space]


@pytest.fixture
def calls(monkeypatch):
    """(method, file) -> number of calls of a store's read, write and append."""
    counter = Counter()
    for name in ("read", "write", "append"):
        inner = getattr(Store, name)

        def counted(self, file, *args, _name=name, _inner=inner, **options):
            counter[_name, file] += 1
            return _inner(self, file, *args, **options)

        monkeypatch.setattr(Store, name, counted)
    return counter


def test_a_start_reads_each_run_once_and_writes_no_known_setting(
    study, corpus, corpus_fields, tmp_path, calls
):
    assert sweep(study, corpus, corpus_fields, tmp_path)
    runs = len(list(tmp_path.glob(f"*/{RECORDS}")))
    calls.clear()
    with closing(StudyStore(tmp_path)) as store:
        planner = Planner(study, resolve(study, corpus, corpus_fields), store)
    assert planner.done
    assert calls["read", RECORDS] == runs
    assert calls["read", SETTINGS] == 1
    assert calls["append", SETTINGS] == 0


def test_study_json_is_written_when_a_best_setting_is_found_and_not_at_every_end(
    study, corpus, corpus_fields, tmp_path, calls
):
    contents = []
    inner = StudyStore.write_study

    def record(self, content):
        contents.append(content)
        inner(self, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StudyStore, "write_study", record)
        assert sweep(study, corpus, corpus_fields, tmp_path)
    points = len(resolve(study, corpus, corpus_fields))
    assert len(contents) <= 1 + points
    assert calls["write", STUDY] <= 1 + points
    assert len(contents[-1]["chosen"]) == points


def test_a_report_reads_and_writes_nothing(study, points, corpus, tmp_path, calls):
    with closing(StudyStore(tmp_path)) as store:
        planner = Planner(dataclasses.replace(study, parallel=4), points, store)
        store._writer.wait()
        calls.clear()
        for run in planner.new_ready():
            planner.start(run)
            for epoch in range(1, study.epochs + 1):
                planner.report(run.id, {"epoch": epoch, "valid_token": 2.0})
        assert not calls


def test_the_suggestions_of_many_points_are_spread_over_calls(
    study, points, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(planners, "AT_ONCE", 1)
    asked, catch_up = [], PointPlanner.catch_up
    monkeypatch.setattr(PointPlanner, "catch_up", lambda self: (asked.append(self), catch_up(self)))
    with closing(StudyStore(tmp_path)) as store:
        planner, running = Planner(study, points, store), []
        while not planner.done:
            before = len(asked)
            for run in planner.new_ready():
                planner.start(run)
                running.append(run)
            assert len(asked) <= before + 1
            run = running.pop()
            record = {"epoch": run.last_epoch + 1, "valid_token": 2.0 + run.last_epoch}
            if planner.report(run.id, record) is Answer.WAIT:
                planner.requeue(run.id)
            elif record["epoch"] == run.budget:
                planner.end(run.id, "finished", test_loss=2.0)
            else:
                running.append(run)
            assert len(asked) <= before + 1
    assert {*asked} == {*planner.points}
