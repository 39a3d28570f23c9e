"""The coordinator answers workers, kills those that do not respond, and ends on errors."""

# ruff: noqa: F811  fixtures are imported, and then requested by name
import functools
import threading

import pytest
from ray import exceptions

from lmzoo.base.errors import UserError
from lmzoo.base.stops import STOPS
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import WORKER_LOCK
from lmzoo.lab.store.writer import NEWS_SECONDS
from lmzoo.lab.sweep.driver.coordinator import (
    END_SECONDS,
    IDLE_SECONDS,
    MAX_FAILED_STARTS,
    MAX_KILLED,
    MAX_MISSED,
    REPLY_SECONDS,
    START_SECONDS,
)
from lmzoo.lab.sweep.driver.placement import actor_options
from lmzoo.lab.sweep.messages import Assignment, Ended, Exchange, Failed
from lmzoo.lab.sweep.worker.worker import HEARTBEAT_SECONDS
from tests.lab.sweep.manual_coordinator import epoch, recovered, sweep  # noqa: F401

# How Ray says that it has killed workers.
LOW = "1 worker(s) were killed due to the node running low on memory.\n(IP: 10.0.0.1, ID: node12)"
NOTHING = Assignment()


def test_reports_are_answered_and_idle_workers_get_what_a_dead_one_had(sweep):
    reply = sweep.exchange("a")
    assert reply.members == [job.config["run"] for job in reply.join]
    assert len(reply.members) == 9, "the start design of three points"
    assert sweep.exchange("a").join == []
    sweep.alive.add("other")
    sweep.start("b", "other")
    assert sweep.exchange("b") == "none"
    sweep.dies("a")
    assert {*sweep.turn()["b"].members} == {*reply.members}


def test_a_report_counts_after_the_news_that_came_before_it(sweep):
    """A run that is neither open nor ended would be pending again."""
    run = sweep.exchange("a").members[0]
    call = sweep.coordinator.actors["a"].call
    # The worker has closed the run; the news of its end is still on its way.
    rest = [i for i in sweep.opened("a") if i != run]
    call.value = Exchange("a", rest, [(run, epoch(4))], 0, news=2)
    assert sweep.turn() == {}
    sweep.say("a", Ended(run, "finished"))
    assert run not in sweep.turn()["a"].members
    assert sweep.fleet.planner.find(run).status == "finished"


@pytest.mark.parametrize(
    "kind",
    ["ActorDiedError", "ActorUnavailableError", "NodeDiedError", "ObjectLostError",
     "OutOfDiskError", "OutOfMemoryError", "RayTaskError", "WorkerCrashedError"],
)  # fmt: skip
def test_every_end_of_a_worker_that_ray_reports_is_a_death_and_is_replaced(sweep, kind):
    sweep.turn(starts=True)
    first, *others = sweep.coordinator.actors
    # Some errors of Ray need arguments that only Ray has.
    bare = {"__init__": lambda _: None, "__str__": lambda _: "gone"}
    sweep.coordinator.actors[first].call.value = type(kind, (getattr(exceptions, kind),), bare)()
    sweep.turn(starts=True)
    sweep.turn(starts=True)
    assert sweep.killed == [first]
    assert first not in sweep.coordinator.actors
    assert len(sweep.coordinator.actors) == 1 + len(others)


def test_an_idle_worker_gets_signs_of_life_and_leaves_after_a_minute(sweep):
    sweep.exchange("a")
    assert sweep.exchange("b") == "none"
    assert sweep.turn(after=REPLY_SECONDS - 1) == {}
    replies = 0
    reply = "none"
    while reply is not None:
        assert sweep.now <= IDLE_SECONDS
        reply = sweep.turn(after=1.1).get("b", "none")
        if reply == NOTHING:
            replies += 1
            assert sweep.exchange("b") == "none"
    assert IDLE_SECONDS < sweep.now < IDLE_SECONDS + 2
    assert IDLE_SECONDS / REPLY_SECONDS / 1.5 < replies <= IDLE_SECONDS / REPLY_SECONDS
    sweep.coordinator.actors["b"].call.value = None
    sweep.turn()
    assert sweep.terminated == ["b"]
    # The one with runs stays.
    assert [*sweep.coordinator.actors] == ["a"]


@pytest.mark.parametrize("answers", [True, False])
def test_a_signal_ends_a_worker_after_its_epoch_and_others_at_once(sweep, monkeypatch, answers):
    sweep.exchange("a")
    assert sweep.exchange("b") == "none"
    sweep.start("starts")
    monkeypatch.setattr(STOPS, "requested", threading.Event())
    STOPS.requested.set()
    assert sweep.coordinator.finished
    assert sweep.coordinator.wanted() == 0
    # Its start has not ended.
    del sweep.coordinator.actors["starts"].call.value
    if answers:
        assert sweep.exchange("a") is None
        for name in "ab":
            sweep.coordinator.actors[name].call.value = None
    turn = sweep.coordinator.turn

    def later():
        sweep.now += END_SECONDS / 3
        turn()

    monkeypatch.setattr(sweep.coordinator, "turn", later)
    for _ in sweep.coordinator.turns():
        pass
    if answers:
        assert sweep.killed == ["starts"]
        assert sweep.terminated == ["a", "b"]
    else:
        assert sweep.killed == ["starts", "a", "b"]
        assert sweep.terminated == []


def test_an_idle_worker_keeps_the_runs_whose_ends_are_being_written(sweep, monkeypatch):
    monkeypatch.setattr(sweep.fleet, "hung", lambda now: {})  # the clock jumps
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
    sweep.dies("b")
    assert {*sweep.exchange("a").members} <= {*rest}


def test_a_worker_without_heartbeats_is_killed_and_others_are_not(sweep):
    for worker in "abc":
        sweep.start(worker)
    for check in range(MAX_MISSED + 3):
        sweep.say("b")
        if check == 2:
            sweep.say("c")
        expected = []
        if check > MAX_MISSED:
            expected = ["a"]
        assert sweep.killed == expected
        sweep.turn(after=HEARTBEAT_SECONDS)
    assert sweep.killed == ["a", "c"]


def test_a_worker_that_hangs_sends_heartbeats_and_one_that_is_stopped_does_not(sweep, monkeypatch):
    for worker in "ab":
        sweep.start(worker)
    sweep.turn(after=HEARTBEAT_SECONDS)
    monkeypatch.setattr(sweep.fleet, "hung", lambda now: {"a": "it hangs", "b": "it hangs"})
    sweep.say("a")
    sweep.turn(after=HEARTBEAT_SECONDS)
    assert sweep.killed == ["a"]


def test_time_in_which_the_sweep_is_stopped_does_not_count(sweep):
    sweep.start("a")
    for _ in range(MAX_MISSED):
        # As if the driver had not run for that long.
        sweep.turn(after=100 * MAX_MISSED * HEARTBEAT_SECONDS)
    assert not sweep.killed


def test_runs_of_a_dead_worker_are_pending_when_its_lock_is_free(sweep):
    runs = sweep.exchange("a").members
    path = sweep.coordinator.store.path
    lock = Store(path).lock(WORKER_LOCK.format("a"))
    tried = threading.Event()
    store = sweep.coordinator.store
    inner = store._new_lock

    def new_lock(name):
        tried.set()
        return inner(name)

    store._new_lock = new_lock
    sweep.coordinator.actors["a"].news.value = exceptions.RayError("gone")
    sweep.turn()
    assert tried.wait(60)
    sweep.turn()
    # The lock is still held, so the worker may still write.
    assert not sweep.fleet.ready
    threading.Timer(0.0, lock.close).start()
    recovered()
    sweep.turn()
    assert {*sweep.exchange("b").members} <= {*runs}
    assert not list(path.glob(WORKER_LOCK.format("*")))


@pytest.mark.parametrize("node", ["node", "lost"])
def test_an_interruption_counts_no_death(sweep, node):
    for worker in map(str, range(12)):
        sweep.start(worker, node)
        sweep.turn()
        sweep.dies(worker)
        sweep.turn()
    # The other node is gone, which says nothing about the run.
    assert bool(sweep.fleet.planner.failed_runs) == (node == "node")


def test_an_error_of_the_training_ends_its_worker(sweep):
    runs = sweep.exchange("a").members
    sweep.coordinator.actors["a"].call.value = Failed("OSError: no disk")
    sweep.turn()
    recovered()
    sweep.turn()
    assert sweep.killed == ["a"]
    assert all(sweep.fleet.health.failed_on(run) == {"host (node)"} for run in runs)


@pytest.mark.parametrize("node", ["node", "lost"])
def test_workers_that_fail_at_their_start_end_the_sweep(sweep, node):
    for worker in map(str, range(MAX_FAILED_STARTS)):
        assert sweep.coordinator.wanted()
        sweep.start(worker, node)
        del sweep.coordinator.actors[worker].call.value
        sweep.dies(worker)
    error = sweep.coordinator.error
    if node == "lost":
        assert error is None, "the machine went away, which is no failure"
    else:
        assert str(error) == "4 workers failed at their start: see Ray's log files"
        assert isinstance(error, UserError)
        assert sweep.coordinator.wanted() == 0


def test_a_shortage_of_memory_is_a_pause_that_doubles_and_then_an_error(sweep):
    for number, pause in enumerate([5.0, 10.0, 20.0, 40.0]):
        assert sweep.coordinator.wanted(), "the pause is over"
        for worker in (f"{number}a", f"{number}b"):  # Ray kills several at once
            sweep.start(worker, "node12")
            del sweep.coordinator.actors[worker].call.value
        sweep.alive = {"node12"}
        for worker in (f"{number}a", f"{number}b"):
            sweep.dies(worker, exceptions.RayError(LOW))
        sweep.turn(after=pause - 1)
        assert not sweep.coordinator.wanted()
        sweep.turn(after=2)
    assert str(sweep.coordinator.error).startswith("4 workers failed at their start: Ray killed")


@pytest.mark.parametrize("trains", [False, True])
def test_a_node_without_memory_is_named_and_left_out_after_three_workers(sweep, trains, caplog):
    """Unless its workers train between the deaths."""
    sweep.live = 3
    sweep.alive = {"node12", "other"}
    sweep.start("good", "other", "there")
    sweep.turn()
    for number in range(MAX_KILLED):
        worker = f"bad{number}"
        sweep.start(worker, "node12")
        sweep.turn()
        if trains:
            sweep.exchange(worker, [("a run", epoch(1))])
        sweep.dies(worker, exceptions.RayError(LOW))
        sweep.turn(after=120)
    expected = ["host (node12)"]
    if trains:
        expected = []
    assert list(sweep.fleet.health.left_out) == expected
    assert caplog.text.count("the memory of its node, host (node12), ran out") >= 2


def test_ray_may_not_say_which_node_lacks_memory(sweep, caplog):
    sweep.start("a")
    sweep.dies("a", exceptions.RayError("killed due to the node running low on memory"))
    assert "its node, which is not known, ran out" in caplog.text


@pytest.mark.parametrize(("hours", "ends"), [(0.9, True), (1.1, False), (0.0, False)])
def test_a_sweep_ends_when_its_workers_have_cost_enough(sweep, hours, ends):
    sweep.coordinator.capacity.resources = Resources(hours=hours)
    for worker in "ab":
        sweep.start(worker)
    sweep.turn(after=1800)  # two workers: one hour
    assert bool(sweep.coordinator.error) is ends
    if ends:
        assert str(sweep.coordinator.error).startswith("--max-cost 0.9: the workers have used 1 ")


@pytest.mark.parametrize("where", ["the planner", "the return of runs"])
def test_an_error_in_a_decision_ends_the_sweep(sweep, monkeypatch, where):
    def fail(error, *_):
        raise error

    sweep.exchange("a")
    bug = functools.partial(fail, ValueError("a bug"))
    if where == "the planner":
        monkeypatch.setattr(sweep.fleet.planner, "report", bug)
        sweep.train_all("a")
    else:
        monkeypatch.setattr(sweep.coordinator.store, "clear_locks", bug)
        sweep.dies("a")
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


@pytest.mark.parametrize("another", [True, False])
def test_a_sweep_none_of_whose_workers_can_start_ends_in_one_line(sweep, another):
    """At once where all have tried, and else after a minute."""
    sweep.live = 2
    sweep.now = 1.0
    sweep.start("a", host="old", failed="this GPU is too old")
    sweep.turn()
    assert sweep.coordinator.error is None, "another one may come"
    if another:
        sweep.start("b", host="older", failed="this GPU is too old")
        sweep.turn()
    else:
        sweep.turn(after=START_SECONDS)
        assert sweep.coordinator.error is None
        sweep.turn(after=1)
    assert isinstance(sweep.coordinator.error, UserError)
    assert str(sweep.coordinator.error) == "no worker can start on old (node): this GPU is too old"


def test_a_sweep_all_of_whose_workers_die_and_cannot_start_again_ends_in_one_line(sweep):
    """As where its package is changed while it runs."""
    sweep.live = 1
    sweep.now = 1.0
    sweep.start("a", host="old")
    assert sweep.turn()["a"].members
    sweep.say("a")
    sweep.exchange("a")
    sweep.dies("a")
    sweep.start("b", host="old", failed="other software")
    sweep.turn()
    sweep.turn(after=START_SECONDS)
    assert sweep.coordinator.error is None, "a better node may come"
    sweep.turn(after=1)
    assert str(sweep.coordinator.error) == "no worker can start on old (node): other software"


def test_a_node_whose_worker_cannot_start_is_left_out(sweep, caplog):
    sweep.live = 2
    sweep.start("good", host="good")
    assert sweep.turn()["good"].members
    sweep.start("bad", host="old", failed="this GPU is too old")
    sweep.turn()
    assert sweep.coordinator.error is None
    assert "old (node) is left out: this GPU is too old" in caplog.text
    assert sweep.fleet.parked == ["bad"]
    sweep.dies("good")
    sweep.turn()
    assert sweep.fleet.ready
    for _ in range(8):
        sweep.say("bad")
        reply = sweep.turn(after=10).get("bad", NOTHING)
        assert reply == NOTHING, "it stays, so that Ray starts no other worker there"
        sweep.exchange("bad")
    assert sweep.coordinator.wanted() >= 2


def test_a_store_that_fails_is_said_at_once_and_not_by_each_worker(sweep, caplog):
    reason = "/runs/x: No space left on device; retrying for 60 s more: make space there"
    sweep.start("a", host="old")
    sweep.start("b")
    sweep.say("a", reason)
    sweep.say("b", reason)
    sweep.turn()
    assert caplog.messages == [f"old (node): {reason}"]
    # It is repeated after a while.
    for after, said in ((NEWS_SECONDS - 1, 1), (1, 2)):
        sweep.say("b", reason)
        sweep.turn(after=after)
        assert len(caplog.messages) == said


def test_a_driver_that_lost_its_lock_while_it_was_stopped_gives_no_work(sweep, monkeypatch):
    def lost():
        raise UserError("the lock was lost")

    sweep.start("w1")
    monkeypatch.setattr(sweep.fleet.planner.store, "check_lock", lost)
    assert sweep.exchange("w1") == "none"
    assert str(sweep.coordinator.error) == "the lock was lost"
    # It ends its workers instead.
    assert sweep.turn() == {"w1": None}


def test_an_actor_gets_the_resources_of_a_worker():
    own = Resources(cpus=2.0, gpus=0.5)
    assert actor_options(own) == {"num_cpus": 2.0, "num_gpus": 0.5}
