"""The coordinator answers workers, kills those that do not respond, and ends the sweep on errors.

Without Ray: each test makes turns of the coordinator's loop, with a clock of its own.
"""

import functools
import pickle
import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from lmzoo.errors import UserError
from lmzoo.store.local import Store
from lmzoo.store.records import WORKER_LOCK
from lmzoo.sweep import coordinator as module
from lmzoo.sweep.coordinator import (
    IDLE_SECONDS,
    MAX_FAILED_STARTS,
    MAX_MISSED,
    NOTHING,
    RECOVERY,
    REPLY_SECONDS,
    Coordinator,
)
from lmzoo.sweep.fleet import Fleet
from lmzoo.sweep.packing import Packer
from lmzoo.sweep.worker import HEARTBEAT_SECONDS


class Sweep:
    """A coordinator with a mailbox, a cluster and a clock that the test controls."""

    def __init__(self, planner, corpus) -> None:
        self.now, self.live, self.alive, self.killed = 0.0, 1, {"node"}, []
        self.beats: Counter[str] = Counter()
        self.refusal: UserError | None = None
        self.fleet = Fleet(planner, Packer(corpus, None))
        capacity = SimpleNamespace(
            live=lambda: self.live,
            limit=lambda: 8,
            node_alive=lambda node: node in self.alive,
            check=self._check,
        )
        mailbox = SimpleNamespace(fetch=SimpleNamespace(remote=self._fetch))
        self.coordinator = Coordinator(self.fleet, planner.store.store, capacity, mailbox)

    def turn(self, *messages, after: float = 0.0) -> dict:
        """Deliver messages after these seconds; return the replies."""
        self.now += after
        self._messages, self._replies = [[*messages], []], {}
        self.coordinator._stopped.clear()
        self.coordinator._run()
        return self._replies

    def _check(self):
        if self.refusal:
            raise self.refusal

    def _fetch(self, replies, seconds):
        self._replies |= {worker: reply for worker, (_, reply) in replies.items()}
        messages = self._messages.pop(0)
        if not self._messages:
            self.coordinator._stopped.set()
        return messages, dict(self.beats)

    def exchange(self, worker, reports=()):
        """Let a worker exchange; return its reply, "none" if there is none yet."""
        replies = self.turn(exchange(worker, self.opened(worker), reports))
        return replies.get(worker, "none")

    def opened(self, worker) -> list[str]:
        state = self.fleet.workers.get(worker)
        return [*state.training, *state.leaving] if state else []

    def train_all(self, worker) -> None:
        """Report the last epoch of all runs of a worker."""
        runs = self.fleet.workers[worker].training.values()
        self.exchange(worker, [(run.id, epoch(run.budget)) for run in runs])

    def start(self, worker) -> None:
        """Let a worker start on the node `node`."""
        self.turn(("hello", worker, pickle.dumps(worker), "node"))


def exchange(worker, opened=(), reports=(), confirmed=()):
    return "exchange", worker, 1, opened, reports, confirmed, 0


def epoch(number):
    return {"epoch": number, "valid_token": 3.0}


@pytest.fixture
def sweep(planner, corpus, monkeypatch):
    result = Sweep(planner, corpus)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: result.now))
    monkeypatch.setattr(module.ray, "get", lambda value: value)
    monkeypatch.setattr(module.ray, "kill", result.killed.append)
    result.coordinator._next_check = HEARTBEAT_SECONDS
    yield result
    recovered(result)


def recovered(sweep) -> None:
    """Wait until the runs of dead workers are returned."""
    for thread in threading.enumerate():
        if thread.name == RECOVERY:
            thread.join()


def test_an_exchange_is_answered(sweep):
    reply = sweep.exchange("a")
    assert reply["members"] == [job["config"]["run"] for job in reply["join"]]
    assert len(reply["members"]) == 12
    assert sweep.exchange("a")["join"] == []


def test_an_idle_worker_is_answered_when_there_is_work(sweep):
    runs = sweep.exchange("a")["members"]
    assert sweep.exchange("b") == "none"
    sweep.coordinator.worker_ended("a", died=True)
    recovered(sweep)
    assert sweep.turn()["b"]["members"] == runs


def test_an_idle_worker_gets_signs_of_life_and_leaves_after_a_minute(sweep):
    sweep.exchange("a")
    assert sweep.exchange("b") == "none"
    assert sweep.turn(after=REPLY_SECONDS - 1) == {}
    replies = 0
    while (reply := sweep.turn(after=1.1).get("b", "none")) is not None:
        assert sweep.now <= IDLE_SECONDS
        replies += reply == vars(NOTHING)
        if reply != "none":
            sweep.exchange("b")
    assert IDLE_SECONDS < sweep.now < IDLE_SECONDS + 2
    assert IDLE_SECONDS / REPLY_SECONDS / 1.5 < replies <= IDLE_SECONDS / REPLY_SECONDS


def test_a_worker_that_is_gone_is_told_to_leave(sweep):
    """Ray Tune may report a worker as ended that still runs, on a node without a connection."""
    sweep.exchange("a")
    sweep.coordinator.worker_ended("a", died=True)
    recovered(sweep)
    assert sweep.fleet.ready
    assert sweep.exchange("a") is None
    assert "a" not in sweep.fleet.workers


def test_an_idle_worker_keeps_the_runs_whose_ends_are_being_written(sweep):
    sweep.live = 2
    sweep.exchange("a")
    rest = sweep.exchange("b")["members"]
    while sweep.fleet.workers["a"].training:
        sweep.train_all("a")
    ending = sweep.opened("a")
    assert len(ending) >= 3
    assert not sweep.turn(after=2 * IDLE_SECONDS).get("a", vars(NOTHING))["members"]
    assert sweep.opened("a") == ending, "they are forgotten"
    sweep.live = 1
    sweep.coordinator.worker_ended("b", died=True)
    recovered(sweep)
    assert sorted(sweep.turn()["a"]["members"]) == sorted(rest)


def test_a_worker_without_heartbeats_is_killed_and_others_are_not(sweep):
    for worker in "abc":
        sweep.start(worker)
    for check in range(MAX_MISSED + 3):
        sweep.beats["b"] += 1
        sweep.beats["c"] += check == 2
        assert sweep.killed == (["a"] if check > MAX_MISSED else [])
        sweep.turn(after=HEARTBEAT_SECONDS)
    assert sweep.killed == ["a", "c"]


def test_time_in_which_the_sweep_is_stopped_does_not_count(sweep):
    sweep.start("a")
    for _ in range(MAX_MISSED):
        sweep.turn(after=100 * MAX_MISSED * HEARTBEAT_SECONDS)
    assert not sweep.killed


def test_runs_of_a_dead_worker_are_pending_when_its_lock_is_free(sweep):
    runs = sweep.exchange("a")["members"]
    path = sweep.coordinator.store.path
    lock = Store(path).lock(WORKER_LOCK.format("a"))
    tried, store = threading.Event(), sweep.coordinator.store
    inner = store._new_lock
    store._new_lock = lambda name: (tried.set(), inner(name))[1]
    sweep.coordinator.worker_ended("a", died=True)
    assert tried.wait(60)
    assert not sweep.fleet.ready
    lock.close()
    recovered(sweep)
    assert sorted(sweep.exchange("b")["members"]) == sorted(runs)
    assert not list(path.glob(WORKER_LOCK.format("*")))


@pytest.mark.parametrize("node", ["node", "lost"])
def test_an_interruption_counts_no_death(sweep, node):
    for number in range(6):
        worker = str(number)
        sweep.turn(("hello", worker, pickle.dumps(worker), node), exchange(worker))
        sweep.coordinator.worker_ended(worker, died=True)
        recovered(sweep)
    assert bool(sweep.fleet.planner.failed_runs) == (node == "node")


@pytest.mark.parametrize("node", ["node", "lost"])
def test_workers_that_fail_at_their_start_end_the_sweep(sweep, node):
    for number in range(MAX_FAILED_STARTS):
        assert sweep.coordinator.wanted()
        worker = str(number)
        hello = ("hello", worker, pickle.dumps(worker), node)
        sweep.turn(hello, ("failed", worker, "ImportError: no torch", False))
        sweep.coordinator.worker_ended(worker, died=True)
    error = sweep.coordinator.error
    if node == "lost":
        assert error is None, "the machine went away, which is no failure"
    else:
        assert str(error) == "4 workers failed at their start: ImportError: no torch"
        assert isinstance(error, UserError)
        assert sweep.coordinator.wanted() == 0


def test_failed_starts_between_exchanges_are_no_error(sweep):
    for number in range(2 * MAX_FAILED_STARTS):
        sweep.exchange("a")
        sweep.coordinator.worker_ended(str(number), died=True)
    assert sweep.coordinator.error is None


def test_an_error_of_the_planner_ends_the_sweep(sweep, monkeypatch):
    sweep.exchange("a")
    bug = ValueError("a bug")
    monkeypatch.setattr(sweep.fleet.planner, "report", functools.partial(fail, bug))
    sweep.train_all("a")
    assert sweep.coordinator.error is bug
    assert sweep.coordinator.finished


def fail(error, *_):
    raise error


def test_an_error_while_runs_are_returned_ends_the_sweep(sweep, monkeypatch):
    sweep.exchange("a")
    bug = UserError("the store is gone")
    monkeypatch.setattr(sweep.coordinator.store, "clear_locks", functools.partial(fail, bug))
    sweep.coordinator.worker_ended("a", died=True)
    recovered(sweep)
    assert sweep.coordinator.error is bug


def test_a_cluster_that_can_no_longer_run_a_worker_ends_the_sweep(sweep):
    sweep.exchange("a")
    sweep.refusal = UserError("a worker needs 1 GPU, but no node of the cluster has that")
    sweep.turn(after=HEARTBEAT_SECONDS - 1)
    assert sweep.coordinator.error is None, "the check is not made at every turn"
    sweep.turn(after=1)
    assert sweep.coordinator.error is sweep.refusal
    assert sweep.coordinator.wanted() == 0


def test_a_fatal_error_of_a_worker_ends_the_sweep_in_one_line(sweep):
    sweep.turn(("failed", "a", "this GPU is too old", False))
    assert sweep.coordinator.error is None
    sweep.turn(("failed", "b", "this GPU is too old", True))
    assert isinstance(sweep.coordinator.error, UserError)
    assert str(sweep.coordinator.error) == "this GPU is too old"


def test_the_thread_runs_while_the_context_is_entered(sweep):
    answered = threading.Event()

    def fetch(replies, seconds):
        if replies:
            answered.set()
        return ([] if answered.is_set() else [exchange("a")]), {}

    sweep.coordinator._mailbox.fetch.remote = fetch
    with sweep.coordinator as running:
        assert answered.wait(60)
    assert not running._thread.is_alive()
