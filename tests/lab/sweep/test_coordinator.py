"""The coordinator answers workers, kills those that do not respond, and ends on errors."""

# ruff: noqa: F811  fixtures are imported, and then requested by name
import asyncio
import functools
import pickle
import threading

import pytest

from lmzoo.base.errors import UserError
from lmzoo.base.stops import STOPS
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import WORKER_LOCK
from lmzoo.lab.store.writer import NEWS_SECONDS
from lmzoo.lab.sweep.driver.coordinator import (
    IDLE_SECONDS,
    LOOK_SECONDS,
    MAX_FAILED_STARTS,
    MAX_KILLED,
    MAX_MISSED,
    NOTHING,
    REPLY_SECONDS,
    START_SECONDS,
)
from lmzoo.lab.sweep.driver.mailbox import Mailbox
from lmzoo.lab.sweep.messages import Failed, Hello, Waiting
from lmzoo.lab.sweep.worker.worker import HEARTBEAT_SECONDS
from tests.lab.sweep.manual_coordinator import epoch, exchange, recovered, sweep  # noqa: F401


def hello(worker: str, node: str = "node", host: str = "host") -> Hello:
    return Hello(worker, pickle.dumps(worker), node, host)


def dies(sweep, worker: str) -> None:
    sweep.coordinator.worker_ended(worker, died=True)
    recovered(sweep)


def test_exchanges_are_answered_and_idle_workers_get_what_a_dead_one_had(sweep):
    reply = sweep.exchange("a")
    assert reply.members == [job.config["run"] for job in reply.join]
    assert len(reply.members) == 9, "the start design of three points"
    assert sweep.exchange("a").join == []
    assert sweep.exchange("b") == "none"
    dies(sweep, "a")
    assert {*sweep.turn()["b"].members} == {*reply.members}
    dies(sweep, "b")
    assert sweep.exchange("a") is None, "on a node without a connection; Ray says that it has ended"
    assert "a" not in sweep.fleet.workers


def test_an_idle_worker_gets_signs_of_life_and_leaves_after_a_minute(sweep):
    sweep.exchange("a")
    assert sweep.exchange("b") == "none"
    assert sweep.turn(after=REPLY_SECONDS - 1) == {}
    replies = 0
    while (reply := sweep.turn(after=1.1).get("b", "none")) is not None:
        assert sweep.now <= IDLE_SECONDS
        replies += reply == NOTHING
        if reply != "none":
            sweep.exchange("b")
    assert IDLE_SECONDS < sweep.now < IDLE_SECONDS + 2
    assert IDLE_SECONDS / REPLY_SECONDS / 1.5 < replies <= IDLE_SECONDS / REPLY_SECONDS


def test_the_end_is_not_seen_in_the_middle_of_a_decision(sweep, monkeypatch):
    """The driver asks in a thread of its own; between two stages no run is ready or running."""
    seen: list[bool] = []
    asks = threading.Thread(target=lambda: seen.append(sweep.coordinator.finished))
    with sweep.coordinator._mutex, monkeypatch.context() as patch:
        patch.setattr(type(sweep.fleet), "done", True)
        asks.start()
        asks.join(0.2)
        assert not seen, "it waits until the decision is made"
    asks.join()
    assert seen == [False]


def test_a_signal_ends_a_worker_after_its_epoch(sweep, monkeypatch):
    sweep.exchange("a")
    assert sweep.exchange("b") == "none"
    monkeypatch.setattr(STOPS, "requested", threading.Event())
    STOPS.requested.set()
    assert sweep.coordinator.finished
    assert sweep.coordinator.wanted() == 0
    assert sweep.turn(exchange("a", sweep.opened("a"))) == {"a": None, "b": None}


def test_an_idle_worker_keeps_the_runs_whose_ends_are_being_written(sweep):
    sweep.live = 2
    sweep.exchange("a")
    rest = sweep.exchange("b").members
    while sweep.fleet.workers["a"].training:
        sweep.train_all("a")
    ending = sweep.opened("a")
    assert len(ending) >= 3
    assert not sweep.turn(after=2 * IDLE_SECONDS).get("a", NOTHING).members
    assert sweep.opened("a") == ending, "they are forgotten"
    sweep.live = 1
    dies(sweep, "b")
    assert {*sweep.turn()["a"].members} <= {*rest}


def test_a_worker_without_heartbeats_is_killed_and_others_are_not(sweep):
    for worker in "abc":
        sweep.start(worker)
    for check in range(MAX_MISSED + 3):
        sweep.beats["b"] += 1
        sweep.beats["c"] += check == 2
        assert sweep.killed == (["a"] if check > MAX_MISSED else [])
        sweep.turn(after=HEARTBEAT_SECONDS)
    assert sweep.killed == ["a", "c"]


def test_a_worker_that_hangs_sends_heartbeats_and_one_that_is_stopped_does_not(sweep, monkeypatch):
    for worker in "ab":
        sweep.start(worker)
    sweep.turn(after=HEARTBEAT_SECONDS)
    monkeypatch.setattr(sweep.fleet, "hung", lambda now: {"a": "it hangs", "b": "it hangs"})
    sweep.beats["a"] += 1
    sweep.turn(after=HEARTBEAT_SECONDS)
    assert sweep.killed == ["a"]


def test_time_in_which_the_sweep_is_stopped_does_not_count(sweep):
    sweep.start("a")
    for _ in range(MAX_MISSED):
        sweep.turn(after=100 * MAX_MISSED * HEARTBEAT_SECONDS)
    assert not sweep.killed


def test_runs_of_a_dead_worker_are_pending_when_its_lock_is_free(sweep):
    runs = sweep.exchange("a").members
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
    assert {*sweep.exchange("b").members} <= {*runs}
    assert not list(path.glob(WORKER_LOCK.format("*")))


@pytest.mark.parametrize("node", ["node", "lost"])
def test_an_interruption_counts_no_death(sweep, node):
    for worker in map(str, range(12)):
        sweep.turn(hello(worker, node), exchange(worker))
        dies(sweep, worker)
    assert bool(sweep.fleet.planner.failed_runs) == (node == "node")


def test_runs_of_an_overdue_worker_are_revoked_by_its_next_heartbeat(sweep, monkeypatch):
    monkeypatch.setattr(sweep.fleet, "overdue", lambda live, now: {"a": ["run"]})
    sweep.turn(after=LOOK_SECONDS)
    sweep.turn()
    assert sweep.revoked == {"a": ["run"]}

    async def talk() -> None:
        mailbox = Mailbox()
        await mailbox.fetch({}, sweep.revoked, 0.0)
        beats = [await mailbox.beat(worker) for worker in ("b", "a", "a")]
        assert beats == [(1, []), (1, ["run"]), (2, [])]

    asyncio.run(talk())


@pytest.mark.parametrize("node", ["node", "lost"])
def test_workers_that_fail_at_their_start_end_the_sweep(sweep, node):
    for worker in map(str, range(MAX_FAILED_STARTS)):
        assert sweep.coordinator.wanted()
        sweep.turn(hello(worker, node), Failed(worker, "ImportError: no torch"))
        sweep.coordinator.worker_ended(worker, died=True)
    error = sweep.coordinator.error
    if node == "lost":
        assert error is None, "the machine went away, which is no failure"
    else:
        assert str(error) == "4 workers failed at their start: ImportError: no torch"
        assert isinstance(error, UserError)
        assert sweep.coordinator.wanted() == 0


def test_a_shortage_of_memory_is_a_pause_that_doubles_and_then_an_error(sweep):
    for number, pause in enumerate([5.0, 10.0, 20.0, 40.0]):
        assert sweep.coordinator.wanted(), "the pause is over"
        for worker in (f"{number}a", f"{number}b"):  # Ray kills several at once
            sweep.turn(hello(worker))
            sweep.coordinator.worker_ended(worker, died=True, memory="10.0.0.1 (node)")
        sweep.turn(after=pause - 1)
        assert not sweep.coordinator.wanted()
        sweep.turn(after=2)
    assert str(sweep.coordinator.error).startswith("4 workers failed at their start: Ray killed")


@pytest.mark.parametrize("trains", [False, True])
def test_a_node_without_memory_is_named_and_left_out_after_three_workers(sweep, trains, caplog):
    """Unless its workers train between the deaths."""
    sweep.live = 3
    sweep.turn(Hello("good", pickle.dumps("good"), "other", "there"))
    sweep.exchange("good")
    for number in range(MAX_KILLED):
        worker = f"bad{number}"
        sweep.start(worker)
        sweep.exchange(worker)
        if trains:
            sweep.exchange(worker, [("a run", epoch(1))])
        sweep.coordinator.worker_ended(worker, died=True, memory="10.0.0.1 (node)")
        recovered(sweep)
        sweep.turn(after=120)
    assert [*sweep.fleet.health.left_out] == ([] if trains else ["host (node)"])
    assert caplog.text.count("the memory of its node, host (node), ran out") >= 2


@pytest.mark.parametrize(("hours", "ends"), [(0.9, True), (1.1, False), (0.0, False)])
def test_a_sweep_ends_when_its_workers_have_cost_enough(sweep, hours, ends):
    sweep.coordinator.capacity.resources = Resources(hours=hours)
    for worker in "ab":
        sweep.beats[worker] += 1
        sweep.start(worker)
    sweep.turn(after=1800)  # two workers: one hour
    assert bool(sweep.coordinator.error) is ends
    if ends:
        assert str(sweep.coordinator.error).startswith("--max-cost 0.9: the workers have used 1 ")


@pytest.mark.parametrize("where", ["the planner", "the return of runs"])
def test_an_error_in_a_thread_ends_the_sweep(sweep, monkeypatch, where):
    def fail(error, *_):
        raise error

    sweep.exchange("a")
    bug = functools.partial(fail, ValueError("a bug"))
    if where == "the planner":
        monkeypatch.setattr(sweep.fleet.planner, "report", bug)
        sweep.train_all("a")
    else:
        monkeypatch.setattr(sweep.coordinator.store, "clear_locks", bug)
        dies(sweep, "a")
    assert str(sweep.coordinator.error) == "a bug"
    assert sweep.coordinator.finished


def test_a_cluster_that_can_no_longer_run_a_worker_ends_the_sweep(sweep):
    sweep.exchange("a")
    sweep.refusal = UserError("a worker needs 1 GPU, but no node of the cluster has that")
    sweep.turn(after=HEARTBEAT_SECONDS - 1)
    assert sweep.coordinator.error is None, "the check is not made at every turn"
    sweep.turn(after=1)
    assert sweep.coordinator.error is sweep.refusal
    assert sweep.coordinator.wanted() == 0


def broken(sweep, worker, host):
    """Let a worker start on a host where it cannot work."""
    failed = Failed(worker, "this GPU is too old", starting=True)
    return sweep.turn(hello(worker, host=host), failed, exchange(worker))


@pytest.mark.parametrize("another", [True, False])
def test_a_sweep_none_of_whose_workers_can_start_ends_in_one_line(sweep, another):
    """At once where all have tried, and else after a minute."""
    sweep.live = 2
    broken(sweep, "a", "old")
    assert sweep.coordinator.error is None, "another one may come"
    if another:
        broken(sweep, "b", "older")
    else:
        sweep.turn(after=START_SECONDS)
        assert sweep.coordinator.error is None
        sweep.turn(after=1)
    assert isinstance(sweep.coordinator.error, UserError)
    assert str(sweep.coordinator.error) == "no worker can start on old (node): this GPU is too old"


def test_a_node_whose_worker_cannot_start_is_left_out(sweep, caplog):
    sweep.live = 2
    sweep.turn(hello("good", host="good"))
    assert sweep.exchange("good").members
    broken(sweep, "bad", "old")
    assert sweep.coordinator.error is None
    assert "old (node) is left out: this GPU is too old" in caplog.text
    assert sweep.fleet.parked == ["bad"]
    dies(sweep, "good")
    assert sweep.fleet.ready
    for _ in range(30):
        reply = sweep.turn(after=10).get("bad", NOTHING)
        assert reply == NOTHING, "it stays, so that Ray starts no other worker there"
    assert sweep.coordinator.wanted() >= 2


def test_a_store_that_fails_is_said_at_once_and_not_by_each_worker(sweep, caplog):
    reason = "/runs/x: No space left on device; retrying for 60 s more: make space there"
    sweep.turn(hello("a", host="old"), hello("b"), Waiting("a", reason), Waiting("b", reason))
    assert caplog.messages == [f"old (node): {reason}"]
    sweep.turn(Waiting("b", reason), after=NEWS_SECONDS - 1)
    assert len(caplog.messages) == 1
    sweep.turn(Waiting("b", reason), after=1)
    assert len(caplog.messages) == 2


def test_a_driver_that_lost_its_lock_while_it_was_stopped_gives_no_work(sweep, monkeypatch):
    sweep.start("w1")

    def lost():
        raise UserError("the lock was lost")

    monkeypatch.setattr(sweep.fleet.planner.store, "check_lock", lost)
    assert sweep.exchange("w1") == "none"
    assert str(sweep.coordinator.error) == "the lock was lost"
