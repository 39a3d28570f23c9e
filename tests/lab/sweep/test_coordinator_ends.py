"""The coordinator ends the sweep on errors and where nothing can run."""

# ruff: noqa: F811  fixtures are imported, and then requested by name
import functools
import pickle
import threading

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.sweep.driver.coordinator import MAX_FAILED_STARTS, NOTHING, START_SECONDS
from lmzoo.lab.sweep.messages import Failed, Hello
from lmzoo.lab.sweep.worker.worker import HEARTBEAT_SECONDS
from tests.lab.sweep.manual_coordinator import epoch, exchange, recovered, sweep  # noqa: F401


@pytest.mark.parametrize("node", ["node", "lost"])
def test_workers_that_fail_at_their_start_end_the_sweep(sweep, node):
    for number in range(MAX_FAILED_STARTS):
        assert sweep.coordinator.wanted()
        worker = str(number)
        hello = Hello(worker, pickle.dumps(worker), node, "host")
        sweep.turn(hello, Failed(worker, "ImportError: no torch"))
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
            sweep.turn(Hello(worker, pickle.dumps(worker), "node", "host"))
            sweep.coordinator.worker_ended(worker, died=True, memory=True)
        sweep.turn(after=pause - 1)
        assert not sweep.coordinator.wanted()
        sweep.turn(after=2)
    assert str(sweep.coordinator.error).startswith("4 workers failed at their start: Ray killed")


def test_failed_starts_between_exchanges_are_no_error(sweep):
    for number in range(2 * MAX_FAILED_STARTS):
        sweep.exchange("a")
        sweep.coordinator.worker_ended(str(number), died=True)
    assert sweep.coordinator.error is None


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


def test_an_error_of_the_planner_ends_the_sweep(sweep, monkeypatch):
    sweep.exchange("a")
    bug = ValueError("a bug")
    monkeypatch.setattr(sweep.fleet.planner, "report", functools.partial(fail, bug))
    sweep.train_all("a")
    assert sweep.coordinator.error is bug
    assert sweep.coordinator.finished


def test_a_sweep_is_not_finished_while_runs_are_planned(sweep):
    """Between the end of the last tuning run and the plan of the confirm runs, none is pending."""
    pending, seen = sweep.fleet.planner._points, []
    ask = threading.Thread(target=lambda: seen.append(sweep.coordinator.finished))
    with sweep.coordinator._mutex:
        kept = dict(pending)
        pending.clear()
        ask.start()
        ask.join(0.2)
        pending.update(kept)
    ask.join()
    assert seen == [False]


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


def broken(sweep, worker, host):
    """Let a worker start on a host where it cannot work."""
    hello = Hello(worker, pickle.dumps(worker), "node", host)
    failed = Failed(worker, "this GPU is too old", starting=True)
    return sweep.turn(hello, failed, exchange(worker))


def test_a_sweep_none_of_whose_workers_can_start_ends_in_one_line(sweep):
    sweep.live = 2
    broken(sweep, "a", "old")
    assert sweep.coordinator.error is None, "another one may come"
    broken(sweep, "b", "older")
    assert isinstance(sweep.coordinator.error, UserError)
    assert str(sweep.coordinator.error) == "no worker can start on old (node): this GPU is too old"


def test_a_sweep_waits_a_minute_for_a_worker_that_can_start(sweep):
    sweep.live = 2
    broken(sweep, "a", "old")
    sweep.turn(after=START_SECONDS)
    assert sweep.coordinator.error is None
    sweep.turn(after=1)
    assert sweep.coordinator.error


def test_a_node_whose_worker_cannot_start_is_left_out(sweep, caplog):
    sweep.live = 2
    sweep.turn(Hello("good", pickle.dumps("good"), "node", "good"))
    assert sweep.exchange("good").members
    broken(sweep, "bad", "old")
    assert sweep.coordinator.error is None
    assert "old (node) is left out: this GPU is too old" in caplog.text
    assert sweep.fleet.parked == ["bad"]
    sweep.coordinator.worker_ended("good", died=True)
    recovered(sweep)
    assert sweep.fleet.ready
    for _ in range(30):
        reply = sweep.turn(after=10).get("bad", NOTHING)
        assert reply == NOTHING, "it stays, so that Ray starts no other worker there"
    assert sweep.coordinator.wanted() >= 2


def test_the_thread_runs_while_the_context_is_entered(sweep):
    answered = threading.Event()

    def fetch(replies, revoked, seconds):
        if replies:
            answered.set()
        return ([] if answered.is_set() else [exchange("a")]), {}

    sweep.coordinator._mailbox.fetch.remote = fetch
    with sweep.coordinator as running:
        assert answered.wait(60)
    assert not running._thread.is_alive()
