"""What an agenda and its bookkeeping cost does not grow with what is already known."""

from collections import Counter
from contextlib import closing
from types import SimpleNamespace

import pytest
from ray.train._internal.storage import StorageContext
from ray.tune.experiment import Trial as TuneTrial

from lmzoo import zoo
from lmzoo.store.local import Store
from lmzoo.store.records import RECORDS, STUDY
from lmzoo.sweep import ray_backend as tuner
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import SETTINGS, StudyStore
from lmzoo.train import run

from .byhand import sweep


@pytest.fixture
def points(study, corpus, corpus_fields):
    return [p for p in resolve(study, corpus, corpus_fields) if p.space]


@pytest.fixture
def touched(monkeypatch):
    """(what, file) -> how often, of every file of a store that is read, written or added to."""
    seen = Counter()
    for name in ("read", "write", "append"):
        inner = getattr(Store, name)

        def counted(self, file, *rest, _name=name, _inner=inner, **more):
            seen[_name, file] += 1
            return _inner(self, file, *rest, **more)

        monkeypatch.setattr(Store, name, counted)
    return seen


@pytest.fixture
def built(monkeypatch):
    """The models that are built; none has been measured yet."""
    run._facts.cache_clear()
    models, build = [], zoo.build
    monkeypatch.setattr(zoo, "build", lambda *args, **more: models.append(args) or build(*args))
    return models


def test_an_agenda_builds_no_model_until_a_run_is_issued(study, points, corpus, tmp_path, built):
    with closing(StudyStore(tmp_path)) as store:
        agenda = Planner(study, points, corpus, store)
        assert agenda.ready()
        assert not built
        job = agenda.next()
        config = store.run(job.run).config
    assert built
    assert config["run"] == job.run
    assert config["parameters"] == sum(p.numel() for p in zoo.build(*built[0]).parameters())
    assert config.keys() >= {"score", "leaks", "state_size", "floor", "environment"}


def test_runs_of_one_model_are_measured_once(study, points, corpus, tmp_path, built):
    with closing(StudyStore(tmp_path)) as store:
        agenda = Planner(study, points, corpus, store)
        first = agenda.next()
        once = len(built)
        others = [job for job in agenda.ready() if job.config["model"] == first.config["model"]]
        assert others, "no second run of this model: the comparison sees nothing"
        for job in others:
            agenda.issue(job)
    assert len(built) == once


def test_a_folder_that_has_its_config_is_not_measured_again(study, points, corpus, tmp_path, built):
    for _ in range(2):
        with closing(StudyStore(tmp_path)) as store:
            agenda = Planner(study, points, corpus, store)
            built.clear(), run._facts.cache_clear()
            job = agenda.next()
            kept = store.run(job.run).config
    assert not built
    assert kept["run"] == job.run


def test_a_start_reads_each_run_once_and_writes_nothing_it_knows(
    study, corpus, corpus_fields, tmp_path, touched
):
    assert sweep(study, corpus, corpus_fields, tmp_path)
    runs = len(list(tmp_path.glob(f"*/{RECORDS}")))
    touched.clear()
    with closing(StudyStore(tmp_path)) as store:
        agenda = Planner(study, resolve(study, corpus, corpus_fields), corpus, store)
    assert agenda.done
    assert touched["read", RECORDS] == runs
    assert touched["read", SETTINGS] == 1
    assert touched["append", SETTINGS] == 0


def test_the_study_is_written_when_a_setting_is_chosen_and_not_at_every_end(
    study, corpus, corpus_fields, tmp_path, touched
):
    described = []
    inner = StudyStore.write_study

    def watched(self, description):
        described.append(description)
        inner(self, description)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StudyStore, "write_study", watched)
        assert sweep(study, corpus, corpus_fields, tmp_path)
    points = len(resolve(study, corpus, corpus_fields))
    assert len(described) <= 1 + points
    assert touched["write", STUDY] <= 1 + points
    assert len(described[-1]["chosen"]) == points


def test_a_generation_of_suggestions_is_one_write(study, points, corpus, tmp_path, touched):
    with closing(StudyStore(tmp_path)) as store:
        Planner(study, points, corpus, store)
        assert touched["append", SETTINGS] == len(points)
        assert all(len(store.settings(point.id)) == study.generation for point in points)


def test_the_newest_waiting_trial_takes_a_free_actor_until_the_oldest_has_waited_long(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(tuner.time, "monotonic", lambda: clock[0])
    trials = [SimpleNamespace(trial_id=name, status="PENDING") for name in "abc"]
    trials[0].status = "RUNNING"
    # Of the thousands that have ended Tune keeps a list, which must not be gone through.
    controller = SimpleNamespace(get_live_trials=lambda: set(map(_Hashed, trials)))
    judge = tuner._Judge(SimpleNamespace(runs=dict.fromkeys("abc")))
    assert judge.choose_trial_to_run(controller).trial_id == "c"
    clock[0] = tuner.START + 1
    assert judge.choose_trial_to_run(controller).trial_id == "b"
    for trial in trials:
        trial.status = "RUNNING"
    assert judge.choose_trial_to_run(controller) is None


def test_of_a_trial_that_is_over_tune_keeps_its_last_word_and_no_averages(tmp_path):
    trial = TuneTrial("sweep", stub=True, storage=StorageContext(str(tmp_path), "x"))
    for loss in (3.0, 2.0):
        trial.update_last_result({"loss": loss, "trial_id": trial.trial_id, "done": loss == 2.0})
    assert trial.metric_analysis["loss"]["min"] == 2.0
    tuner._Judge(SimpleNamespace(runs={})).on_trial_complete(None, trial, trial.last_result)
    assert not trial.metric_analysis
    assert not trial.metric_n_steps
    assert trial.last_result["loss"] == 2.0


class _Hashed:
    """A trial as Tune has them: to be put into a set."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)
