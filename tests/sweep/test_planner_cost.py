"""The cost of a planner does not grow with what the store already contains."""

from collections import Counter
from contextlib import closing

import pytest

from lmzoo import zoo
from lmzoo.store.local import Store
from lmzoo.store.records import RECORDS, STUDY
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import SETTINGS, StudyStore
from lmzoo.train import run_config

from .local_sweep import sweep


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


@pytest.fixture
def built(monkeypatch):
    """The arguments of all calls of `zoo.build`; no model facts are cached."""
    run_config._model_facts.cache_clear()
    models, build = [], zoo.build
    monkeypatch.setattr(zoo, "build", lambda *args, **_: models.append(args) or build(*args))
    return models


def test_no_model_is_built_until_a_run_starts(study, points, corpus, tmp_path, built):
    with closing(StudyStore(tmp_path)) as store:
        planner = Planner(study, points, corpus, store)
        assert planner.ready()
        assert not built
        run = planner.start_next()
        config = store.run(run.id).config
    assert built
    assert config["run"] == run.id
    assert config["parameters"] == sum(p.numel() for p in zoo.build(*built[0]).parameters())
    assert config.keys() >= {"score", "leaks", "state_size", "floor", "environment"}


def test_runs_of_one_model_build_it_once(study, points, corpus, tmp_path, built):
    with closing(StudyStore(tmp_path)) as store:
        planner = Planner(study, points, corpus, store)
        first = planner.start_next()
        builds = len(built)
        others = [run for run in planner.ready() if run.config["model"] == first.config["model"]]
        assert others, "no second run of this model, so nothing was tested"
        for run in others:
            planner.start(run)
    assert len(built) == builds


def test_a_run_folder_with_a_config_needs_no_model(study, points, corpus, tmp_path, built):
    for _ in range(2):
        with closing(StudyStore(tmp_path)) as store:
            planner = Planner(study, points, corpus, store)
            built.clear(), run_config._model_facts.cache_clear()
            run = planner.start_next()
            config = store.run(run.id).config
    assert not built
    assert config["run"] == run.id


def test_a_start_reads_each_run_once_and_writes_no_known_setting(
    study, corpus, corpus_fields, tmp_path, calls
):
    assert sweep(study, corpus, corpus_fields, tmp_path)
    runs = len(list(tmp_path.glob(f"*/{RECORDS}")))
    calls.clear()
    with closing(StudyStore(tmp_path)) as store:
        planner = Planner(study, resolve(study, corpus, corpus_fields), corpus, store)
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


def test_a_generation_of_settings_is_written_at_once(study, points, corpus, tmp_path, calls):
    with closing(StudyStore(tmp_path)) as store:
        Planner(study, points, corpus, store)
        assert calls["append", SETTINGS] == len(points)
        assert all(len(store.settings(point.id)) == study.generation for point in points)
