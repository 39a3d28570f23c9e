"""A worker trains what it is assigned, through lost answers, silence and errors. Without Ray."""

import contextlib
import os
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster.head_store import write_nonce
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import WORKER_LOCK, RunFolder
from lmzoo.lab.store.writer import LOG
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Assignment, Ended, Exchange, Failed, Released, Started
from lmzoo.lab.sweep.worker import worker as module
from lmzoo.lab.sweep.worker.worker import Worker

from .local_sweep import outcome

MAX_STEPS = 1000
LOCK = WORKER_LOCK.format("w")


class Driver:
    """Answers one worker by a fleet, as the coordinator does."""

    def __init__(self, planner, corpus) -> None:
        self.fleet = Fleet(planner, Packer(corpus, 0))
        self.planner = planner
        self.corpus = corpus
        self.worker = Worker("w")
        self.received = 0
        self.opened = []

    def start(self, **options) -> Exchange | Failed:
        store = self.planner.store.store
        own = {"nonce": write_nonce(store), "threads": torch.get_num_threads(), **options}
        return self.worker.start(self.corpus, store=store.address, **own)

    def sweep(self, exchange: Exchange, before_step=lambda number: None) -> None:
        """Let the worker train all runs, and end it."""
        for number in range(1, MAX_STEPS):
            self.opened.append(exchange.opened)
            while self.received < exchange.news:
                self.hear()
            assignment = self.fleet.exchange(exchange, live=1, now=0.0)
            if self.fleet.done:
                break
            before_step(number)
            exchange = self.worker.work(number, assignment or Assignment())
            # The same number, so it is the same call.
            again = self.worker.work(number, assignment or Assignment())
            assert again is exchange, "Ray repeats a call whose answer was lost"
        assert self.fleet.done
        self.worker.close()

    def hear(self) -> None:
        news = self.worker.news(self.received)
        assert self.worker.news(self.received)[: len(news)] == news, "so with its news"
        self.received += len(news)
        for each in news:
            if isinstance(each, Released):
                self.fleet.released("w", each.run)
            elif isinstance(each, Ended):
                self.fleet.ended("w", each)


@pytest.fixture
def driver(planner, corpus, monkeypatch):
    context = SimpleNamespace(get_node_id=lambda: "node")
    monkeypatch.setattr(module.ray, "get_runtime_context", lambda: context)
    driver = Driver(planner, corpus)
    yield driver
    # The worker has added one, which would outlive the test.
    LOG.handlers.clear()
    with contextlib.suppress(UserError, AttributeError):  # the disk is gone, or no set-up
        driver.worker.close()


def locked(path) -> bool:
    try:
        Store(path).lock(LOCK).close()
    except UserError:
        return True
    return False


def test_a_worker_trains_all_runs_and_has_a_lock_meanwhile(driver, tmp_path, undisturbed):
    seen = []
    driver.sweep(driver.start(), lambda number: seen.append(locked(tmp_path)))
    assert {*seen} == {True}
    assert not locked(tmp_path)
    actual = outcome(tmp_path)
    assert actual
    assert_part_of(actual, outcome(undisturbed))


def test_a_worker_says_where_it_is_and_then_that_it_lives(driver, monkeypatch):
    assert driver.worker.news(0) == [Started("node", os.uname().nodename)]
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.2)
    assert driver.worker.news(1) == []
    driver.start()
    threading.Timer(0.05, LOG.warning, ["no space; retrying"]).start()
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 120)
    assert driver.worker.news(1) == ["no space; retrying"]


def test_a_worker_without_calls_releases_its_runs_and_continues_them(
    driver, monkeypatch, tmp_path, undisturbed
):
    seen = []

    def wait(number):
        patience = 60
        if number in (2, 8):
            # Before the next call the worker gives up its runs.
            patience = 0.01
        monkeypatch.setattr(module, "RELEASE_SECONDS", patience)
        if number in (3, 9):
            while driver.worker._lock is not None:
                time.sleep(0.01)
            runs = [RunFolder(tmp_path / run) for run in driver.opened[-1]]
            assert not locked(tmp_path)
            assert driver.worker._pack.opened == []
            seen.append(any(map(has_epochs, runs)))

    driver.sweep(driver.start(), wait)
    assert seen == [True, True], "nothing was written before the release"
    assert driver.opened[3] == []
    assert not locked(tmp_path)
    assert_part_of(outcome(tmp_path), outcome(undisturbed))


def assert_part_of(actual, expected):
    """Assert that the runs are those of the undisturbed sweep, which had packs."""
    assert actual.items() <= expected.items()


def has_epochs(folder: RunFolder) -> bool:
    return any(record["event"] == "epoch" for record in folder.records())


@pytest.mark.parametrize(
    ("option", "message"),
    [({"gpu": 1.0}, "install a CUDA build of torch"),
     ({"nonce": "of another store"}, "does not see the store")],
)  # fmt: skip
def test_a_worker_that_cannot_start_says_so_and_trains_nothing(driver, option, message):
    if "gpu" in option and torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    failed = driver.start(**option)
    assert isinstance(failed, Failed)
    assert message in failed.reason
    assert driver.worker.work(1, Assignment()).opened == []


def test_an_error_of_the_training_is_returned(driver, monkeypatch, tmp_path):
    assignment = driver.fleet.exchange(driver.start(), live=1, now=0.0)

    def fail(*_):
        raise OSError("no disk \udcff\nin detail")

    monkeypatch.setattr("lmzoo.train.run.fit", fail)
    failed = driver.worker.work(1, assignment)
    assert isinstance(failed, Failed)
    assert failed.reason.startswith(r"OSError: no disk \udcff (test_worker.py, line ")
    texts = [path.read_text() for path in tmp_path.glob("*/traceback.txt")]
    assert any(r"no disk \udcff" in text for text in texts)
    assert not locked(tmp_path), "the others are written"
