"""The study store writes in order in the background, and no error of a write is lost."""

import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import TABLE_FILES
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.store import records as files
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.local import Store, retried
from lmzoo.lab.study import study_store
from lmzoo.lab.study.study_store import ReadOnlyStudyStore, StudyStore
from tests.lab.store.conftest import bucket, s3_server  # noqa: F401
from tests.lab.sweep.local_sweep import outcome, sweep

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


PACKAGES = {"numpy": "0.1", "gone": "1"}


@pytest.fixture(params=["folder", "bucket"])
def address(request, tmp_path):
    if request.param == "bucket":
        return request.getfixturevalue("bucket")
    return tmp_path / "toy"


def test_known_runs_are_those_of_the_opening(address):
    with closing(StudyStore(address)) as store:
        assert store.known_runs == set()
        store.run("one").append({"event": "epoch", "epoch": 1})
        store.write_study({})
        assert store.known_runs == set()
    with closing(StudyStore(address)) as store:
        assert store.known_runs == {"one"}
    assert ReadOnlyStudyStore(address).known_runs == {"one"}


def test_settings_are_read_by_the_next_sweep(address):
    first = {0: {"lr": 1.0}, 1: {"lr": 2.0}}
    second = {2: {"lr": 3.0}}
    with closing(StudyStore(address)) as store:
        store.add_settings("a", first)
        store.add_settings("a", second)
    with closing(StudyStore(address)) as store:
        assert store.settings("a") == first | second


def test_the_last_study_is_read_by_the_next_sweep(address):
    with closing(StudyStore(address)) as store:
        for number in range(5):
            store.write_study({"number": number})
    with closing(StudyStore(address)) as store:
        text = store.store.read(files.STUDY)
    version = {"schema": files.SCHEMA, "numerics": files.NUMERICS}
    assert files.parse_json(text) == version | {"number": 4}


NOW = {"schema": 2, "environment": {"cpu": "now"}}


@pytest.fixture
def of_another_numpy(address):
    """A store of which the run `one` ended with another numpy, and nothing is known of `two`."""
    end = {"event": "end", "epoch": 1, "status": "finished"}
    environment = {"packages": PACKAGES}
    with closing(StudyStore(address)) as store:
        one = store.run("one")
        one.create(NOW | {"program": "command"})
        one.append(end | {"environment": environment})
        two = store.run("two")
        two.append(end | {"environment": {}})
    return address


def test_runs_of_another_environment_are_named(of_another_numpy):
    with closing(StudyStore(of_another_numpy)) as store:
        assert store.records("one", lambda: NOW)
        assert store.records("two", lambda: NOW)
        upgrade = {"numpy": ("0.1", np.__version__)}
        assert store.changed == {"one": upgrade}


def test_runs_of_another_environment_are_trained_again_if_asked(of_another_numpy):
    with closing(StudyStore(of_another_numpy, again=True)) as store:
        assert store.records("two", lambda: NOW)
        assert store.records("one", lambda: NOW) == []
        assert store.run("one").config == NOW
    later = ReadOnlyStudyStore(of_another_numpy)
    assert later.run("one").records() == []


def test_another_question_is_said(address):
    first = {"name": "toy", "question": "Which?", "points": [{"label": "one"}]}
    with closing(StudyStore(address)) as store:
        assert store.other_question("Which?") == ""
        store.write_study(first)
    with closing(StudyStore(address)) as store:
        assert store.other_question("Which?") == ""
        assert "another question, 'Which?'" in store.other_question("Why?")


def test_calls_do_not_wait_and_only_the_latest_study_is_written(tmp_path, monkeypatch):
    begin = threading.Event()
    write = Store.write
    written = []

    def write_slowly(self, name, data):
        # Until all calls have been made.
        begin.wait(60)
        written.append(files.parse_json(data)["number"])
        write(self, name, data)

    monkeypatch.setattr(Store, "write", write_slowly)
    with closing(StudyStore(tmp_path / "toy")) as store:
        for number in range(100):
            store.write_study({"number": number})
        store.write_study({"number": 99})
        begin.set()
    # The first one, which waited, and the last one.
    assert len(written) <= 2
    assert written[-1] == 99


@pytest.fixture
def refusing(tmp_path, monkeypatch):
    """A store of which a write has failed in the background."""

    def refuse(*_):
        raise OSError(13, "Permission denied")

    store = StudyStore(tmp_path / "toy")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", retried(refuse))
        store.add_settings("a", {0: {}})
        # The error is raised by a later call.
        while store._writer._queues:
            pass
    yield store
    StudyStore(tmp_path / "toy").close()  # it is not locked


def test_an_error_is_raised_by_the_next_call(refusing):
    with pytest.raises(UserError, match=r"settings.ndjson: Permission denied"):
        refusing.write_study({})
    refusing.close()


def test_an_error_is_raised_by_close(refusing):
    with pytest.raises(UserError, match=r"settings.ndjson: Permission denied"):
        refusing.close()


@pytest.fixture
def worker(address):
    """The lock of a worker of the sweep before."""
    return open_store(address).lock(files.WORKER_LOCK.format("1"))


def test_a_sweep_does_not_begin_beside_the_workers_of_the_one_before(address, worker, monkeypatch):
    monkeypatch.setattr(study_store, "WORKER_SECONDS", 0.3)
    with pytest.raises(UserError, match=r"is in use by process \d+ on"):
        StudyStore(address)
    worker.close()


def test_a_sweep_waits_for_the_workers_of_the_one_before(address, worker, monkeypatch):
    monkeypatch.setattr(study_store, "WORKER_SECONDS", 60.0)
    timer = threading.Timer(0.5, worker.close)
    timer.start()
    StudyStore(address).close()
    timer.join()


def test_a_bucket_equals_a_folder(bucket, study, corpus, corpus_fields, tmp_path):  # noqa: F811
    two = study.points[:2]
    small = replace(study, points=two, samples=2)
    address = f"{bucket}/runs/toy-text"
    folder = tmp_path / "toy-text"
    # Interrupted twice.
    assert not sweep(small, corpus, corpus_fields, address, steps=7)
    assert not sweep(small, corpus, corpus_fields, address, steps=5)
    assert sweep(small, corpus, corpus_fields, address)
    assert sweep(small, corpus, corpus_fields, folder)

    fetched = open_store(address).local_copy([*TABLE_FILES, files.SETTINGS])
    assert outcome(fetched) == outcome(folder)
    for name in (files.STUDY, files.SETTINGS):
        written = (folder / name).read_bytes()
        assert (fetched / name).read_bytes() == written
    assert not list(fetched.glob(f"*/{files.CHECKPOINT}"))
    of_bucket = study_ranking(Path(address)).frame
    of_folder = study_ranking(folder).frame
    # Only the time differs.
    assert of_bucket.drop("seconds").equals(of_folder.drop("seconds"))
