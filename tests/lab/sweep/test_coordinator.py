"""The coordinator answers workers and kills those that do not respond."""

# ruff: noqa: F811  fixtures are imported, and then requested by name
import asyncio
import pickle
import threading

import pytest

from lmzoo.base.stops import STOPS
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import WORKER_LOCK
from lmzoo.lab.sweep.driver.coordinator import (
    IDLE_SECONDS,
    LOOK_SECONDS,
    MAX_MISSED,
    NOTHING,
    REPLY_SECONDS,
)
from lmzoo.lab.sweep.driver.mailbox import Mailbox
from lmzoo.lab.sweep.messages import Hello
from lmzoo.lab.sweep.worker.worker import HEARTBEAT_SECONDS
from tests.lab.sweep.manual_coordinator import epoch, exchange, recovered, sweep  # noqa: F401


def test_an_exchange_is_answered(sweep):
    reply = sweep.exchange("a")
    assert reply.members == [job.config["run"] for job in reply.join]
    assert len(reply.members) == 9, "the start design of three points"
    assert sweep.exchange("a").join == []


def test_an_idle_worker_is_answered_when_there_is_work(sweep):
    runs = sweep.exchange("a").members
    assert sweep.exchange("b") == "none"
    sweep.coordinator.worker_ended("a", died=True)
    recovered(sweep)
    assert {*sweep.turn()["b"].members} == {*runs}


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
    """Ray Tune asks in a thread of its own; between two stages no run is ready or running."""
    monkeypatch.setattr(type(sweep.fleet), "done", True)
    seen: list[bool] = []
    asks = threading.Thread(target=lambda: seen.append(sweep.coordinator.finished))
    with sweep.coordinator._mutex:
        asks.start()
        asks.join(0.2)
        assert not seen, "it waits until the decision is made"
    asks.join()
    assert seen == [True]


def test_a_worker_that_is_gone_is_told_to_leave(sweep):
    """Ray Tune may report a worker as ended that still runs, on a node without a connection."""
    sweep.exchange("a")
    sweep.coordinator.worker_ended("a", died=True)
    recovered(sweep)
    assert sweep.fleet.ready
    assert sweep.exchange("a") is None
    assert "a" not in sweep.fleet.workers


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
    sweep.coordinator.worker_ended("b", died=True)
    recovered(sweep)
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
    for number in range(12):
        worker = str(number)
        sweep.turn(Hello(worker, pickle.dumps(worker), node, "host"), exchange(worker))
        sweep.coordinator.worker_ended(worker, died=True)
        recovered(sweep)
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
