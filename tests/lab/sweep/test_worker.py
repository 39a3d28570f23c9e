"""A worker trains what a mailbox assigns, through timeouts and errors. Without Ray."""

import contextlib
import os
import pickle
import threading
from types import SimpleNamespace

import pytest
import torch
from ray.exceptions import GetTimeoutError

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster.head_store import write_nonce
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import WORKER_LOCK, RunFolder
from lmzoo.lab.sweep.driver.coordinator import NOTHING
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Confirmed, Failed, Hello, Released
from lmzoo.lab.sweep.worker import worker as module
from lmzoo.lab.sweep.worker.worker import RELEASE_SECONDS, Worker

from .local_sweep import outcome

MAX_EXCHANGES = 1000
LOCK = WORKER_LOCK.format("w")


class LocalWorker(Worker):
    """A worker without Ray's actor."""

    def _send_heartbeats(self, hello) -> None:
        hello()  # once: a thread that goes on would call Ray after the test


class LocalMailbox:
    """A mailbox that asks a fleet at once; it may lose messages or not respond."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.posts, self.opened = fleet, [], []
        self.loses_posts, self.silent = False, set[int]()
        """Numbers of the exchanges that get no reply in time."""
        for method in (self.exchange, self.post, self.beat):
            setattr(self, method.__name__, SimpleNamespace(remote=method))

    def exchange(self, message):
        self.opened.append(message.opened)
        assert message.number == len(self.opened)
        assert len(self.opened) < MAX_EXCHANGES, "the sweep does not end"
        self.confirm(message.confirmed)
        reply = self.fleet.exchange(message, live=1, now=0.0)
        return None if self.fleet.done else reply or NOTHING

    def post(self, message):
        self.posts.append(message)
        if isinstance(message, Confirmed) and not self.loses_posts:
            self.confirm(message.runs)

    def beat(self, worker):
        return 1, []

    def confirm(self, confirmed):
        for run in confirmed:
            if isinstance(run, Released):
                self.fleet.released("w", run.run)
            else:
                self.fleet.ended("w", run)


@pytest.fixture
def mailbox(planner, corpus, monkeypatch):
    result = LocalMailbox(Fleet(planner, Packer(corpus, 0)))
    context = SimpleNamespace(current_actor="handle", get_node_id=lambda: "node")
    monkeypatch.setattr(module.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(module.ray, "get", lambda value, timeout=None: value)
    return result


@pytest.fixture
def set_up(mailbox, planner, corpus):
    """Returns a worker after its `setup`."""
    workers = []

    def make(**options) -> LocalWorker:
        store = planner.store.store
        options = {"nonce": write_nonce(store), "threads": torch.get_num_threads(), **options}
        workers.append(LocalWorker("w", mailbox, corpus, store=store.address, **options))
        return workers[-1]

    yield make
    for worker in workers:
        with contextlib.suppress(UserError, AttributeError):  # the disk is gone, or no set-up
            worker._lock.close()


def locked(path) -> bool:
    try:
        Store(path).lock(LOCK).close()
    except UserError:
        return True
    return False


def test_a_worker_trains_all_runs_and_has_a_lock_meanwhile(set_up, mailbox, tmp_path, undisturbed):
    worker = set_up()
    worker.train()
    assert locked(tmp_path)
    worker.close()
    assert not locked(tmp_path)
    expected = outcome(undisturbed)
    actual = outcome(tmp_path)
    assert actual
    assert all(actual[run] == expected[run] for run in actual)


def test_a_worker_says_hello_first_and_after_a_restart_of_the_mailbox(set_up, mailbox, monkeypatch):
    counts, asleep = iter([1, 2, 3, 1, 2]), []
    done = threading.Event()

    def sleep(seconds):
        asleep.append(len(mailbox.posts))
        if len(asleep) == 5:
            done.set()
            threading.Event().wait()

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(mailbox.beat, "remote", lambda worker: (next(counts), []))
    monkeypatch.setattr(LocalWorker, "_send_heartbeats", Worker._send_heartbeats)
    set_up()
    assert done.wait(60)
    assert asleep == [1, 1, 1, 2, 2]
    hello = Hello("w", pickle.dumps("handle"), "node", os.uname().nodename)
    assert mailbox.posts == [hello] * 2


def test_a_worker_without_replies_releases_its_runs_and_continues_them(
    set_up, mailbox, monkeypatch, tmp_path, undisturbed
):
    worker, seen = set_up(), []

    def get(reply, timeout=None):
        number = len(mailbox.opened) if reply != (1, []) else 0  # the reply to a heartbeat
        if timeout:
            assert timeout == RELEASE_SECONDS
            if number in (3, 9):
                raise GetTimeoutError
        elif number:
            runs = [RunFolder(tmp_path / run) for run in mailbox.opened[-1]]
            seen.append((locked(tmp_path), worker._pack.opened, sum(map(has_epochs, runs))))
        return reply

    monkeypatch.setattr(module.ray, "get", get)
    worker.train()
    worker.close()
    assert [(lock, opened) for lock, opened, _ in seen] == [(False, []), (False, [])]
    assert all(written for *_, written in seen), "nothing was written before the release"
    assert mailbox.opened[3] == []
    assert not locked(tmp_path)
    expected = outcome(undisturbed)
    actual = outcome(tmp_path)
    assert all(actual[run] == expected[run] for run in actual)


def has_epochs(folder: RunFolder) -> bool:
    return any(record["event"] == "epoch" for record in folder.records())


@pytest.mark.parametrize(
    ("option", "message"),
    [({"gpu": 1.0}, "install a CUDA build of torch"),
     ({"nonce": "of another store"}, "does not see the store")],
)  # fmt: skip
def test_a_worker_that_cannot_start_says_so_and_trains_nothing(
    set_up, mailbox, monkeypatch, option, message
):
    if "gpu" in option and torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    worker = set_up(**option)
    failed = mailbox.posts[-1]
    assert isinstance(failed, Failed)
    assert failed.starting
    assert message in failed.reason
    replies = iter([NOTHING, NOTHING, None])
    monkeypatch.setattr(mailbox.exchange, "remote", lambda *_: next(replies))
    worker.run()


def test_an_error_of_the_training_is_posted_and_raised(set_up, mailbox, monkeypatch):
    worker = set_up()

    def fail(*_):
        raise OSError("no disk\nin detail")

    monkeypatch.setattr("lmzoo.train.run.fit", fail)
    with pytest.raises(OSError, match="no disk"):
        worker.train()
    failed = mailbox.posts[-1]
    assert isinstance(failed, Failed)
    assert not failed.starting
    assert failed.reason.startswith("OSError: no disk (test_worker.py, line ")
    [run_id] = worker._pack.opened
    assert "no disk\nin detail" in (worker._store / run_id).read("traceback.txt").decode()
    worker.close()


def test_lost_confirmations_are_sent_again(set_up, mailbox):
    mailbox.loses_posts = True
    worker = set_up()
    worker.train()
    assert mailbox.fleet.done
    assert worker._confirmed == [], "they are sent forever"
    worker.close()
