"""A fleet gives every pending run to one worker at a time, whatever happens to the workers."""

import itertools
import math
import random

import numpy as np
import pytest

from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.health import DEATHS_ON_THE_ONLY_NODE
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Ended, Exchange

from .local_fleet import fleet_sweep
from .local_sweep import assert_close, outcome


@pytest.fixture(autouse=True)
def share_at_once(monkeypatch):
    """Runs move to an idle worker however little time they need."""
    monkeypatch.setattr("lmzoo.lab.sweep.fleet.fleet.MIN_SECONDS_LEFT", -1.0)


@pytest.fixture
def fleet(planner, corpus):
    return Fleet(planner, Packer(corpus, None))


def ask(fleet, name, reports=(), live=1, opened=None, node="", now=0.0, memory=0):
    if opened is None:
        opened = opened_by(fleet, name)
    message = Exchange(name, opened, reports, memory)
    return fleet.exchange(message, live=live, now=now, node=node)


def opened_by(fleet, name):
    if name not in fleet.workers:
        return []
    worker = fleet.workers[name]
    return list(worker.training) + list(worker.leaving)


def dies(fleet, name, reason="", node="", *, interrupted=False, killed=False):
    runs = fleet.gone(name)
    fleet.give_back(runs, interrupted=interrupted, reason=reason, node=node, killed=killed)


def epoch(number, loss=3.0):
    return {"epoch": number, "valid_token": loss}


def test_a_packed_sweep_gives_the_results_of_single_runs(
    study, corpus, corpus_fields, tmp_path, undisturbed
):
    events, sizes = fleet_sweep(study, corpus, corpus_fields, tmp_path)
    assert max(sizes) > 2, "no pack was trained, so nothing was tested"
    assert_close(outcome(tmp_path), outcome(undisturbed))
    assert (tmp_path / "study.json").read_text() == (undisturbed / "study.json").read_text()
    assert len(events.started) == len(set(events.started)) == len(events.ended)
    assert len(events.epochs) == len(set(events.epochs))
    losses = [test["token"] for _, _, test in events.ended if test]
    assert losses
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("size", "workers", "steps"), [(0, 3, 60), (3, 2, 25)])
def test_deaths_and_moves_change_no_digit_of_single_runs_and_packs_by_rounding_only(
    study, corpus, corpus_fields, tmp_path, undisturbed, seed, size, workers, steps
):
    deaths = random.Random(seed).sample(range(steps), steps // 5)
    disturbances = {"deaths": deaths[::2], "lost": deaths[1::2]}
    how = {"size": size, "workers": workers, "seed": seed} | disturbances
    events, _ = fleet_sweep(study, corpus, corpus_fields, tmp_path, **how)
    tolerance = 0.0
    if size:
        # Other members change the order of sums.
        tolerance = 2e-5
    assert_close(outcome(tmp_path), outcome(undisturbed), tolerance)
    assert len(events.epochs) == len(set(events.epochs))


def test_a_worker_that_comes_late_gets_runs_of_a_full_one(fleet):
    first = ask(fleet, "first").members
    assert ask(fleet, "second") is None
    # It waits for the runs that the first one will release.
    assert fleet.idle == {"second"}
    fleet.workers["first"].settled = True  # it has trained an epoch
    reply = ask(fleet, "first")
    moving = len(first) // 2
    assert len(reply.release) == moving
    assert len(reply.members) == len(first) - moving
    for run in reply.release:
        fleet.released("first", run)
    taken = ask(fleet, "second", live=2)
    assert set(taken.members) == set(reply.release)
    for job in taken.join:
        # The first worker had begun the run, and its folder is there.
        assert job.epoch == 0
        assert not job.is_new


@pytest.mark.parametrize(("seconds", "moves"), [(15, False), (25, True)])
def test_a_pack_on_a_gpu_moves_only_if_it_lasts_longer_than_a_compilation(fleet, seconds, moves):
    """Where it moves, another worker compiles it, which takes up to 20 seconds."""
    ask(fleet, "first", memory=2**30)
    ask(fleet, "second", memory=2**30)
    worker = fleet.workers["first"]
    worker.settled = True
    for size in (1, 9):  # a pack costs as much as its runs
        fleet.pace.add(worker.key, size, float(size))
    now = seconds / worker.epochs_left()
    reply = ask(fleet, "first", live=2, memory=2**30, now=now)
    assert bool(reply.release) == moves


def sizes_until_a_run_fails(fleet, reason, *, killed):
    """Let all workers die on the only node; return the sizes of their packs."""
    sizes = []
    while not fleet.planner.failed_runs:
        name = f"worker {len(sizes)}"
        sizes.append(len(ask(fleet, name).members))
        dies(fleet, name, reason, killed=killed)
    return sizes


HUNG = "no heartbeat for 60 s"


@pytest.mark.parametrize("reason", ["", "a bug", HUNG])
def test_the_members_of_a_pack_that_dies_are_tried_in_halves(fleet, reason):
    sizes = sizes_until_a_run_fails(fleet, reason, killed=reason == HUNG)
    halving = [size for size in sizes if size > 1]
    for before, after in itertools.pairwise(halving):
        assert after == math.ceil(before / 2)


def assert_fails_after(times, fleet, reason, *, killed=False):
    """Assert that the first run to fail was tried so often by itself; return its reason."""
    sizes = sizes_until_a_run_fails(fleet, reason, killed=killed)
    assert sizes.count(1) == times
    (run,) = fleet.planner.failed_runs
    return run.reason


def test_an_error_of_a_single_run_decides_at_once(fleet):
    assert assert_fails_after(1, fleet, "a bug") == "a bug"


def test_a_death_of_a_single_run_decides_later(fleet):
    said = assert_fails_after(DEATHS_ON_THE_ONLY_NODE, fleet, "")
    assert said == "its workers died without progress"


def test_a_single_run_that_hangs_fails_later(fleet):
    assert assert_fails_after(DEATHS_ON_THE_ONLY_NODE, fleet, HUNG, killed=True) == HUNG


def test_runs_that_were_apart_share_packs_again_after_an_epoch(fleet):
    runs = fleet.planner.ready()
    (usual,) = {fleet.packer.pack_key(run) for run in runs}
    ask(fleet, "dies")
    dies(fleet, "dies")
    assert usual not in map(fleet.packer.pack_key, runs)
    half = ask(fleet, "works").members
    assert fleet.workers["works"].key != usual
    reply = ask(fleet, "works", [(run, epoch(1)) for run in half])
    stayed = set(half).intersection(reply.members)
    assert stayed or set(half) == set(reply.release)
    together = {run.id for run in runs if fleet.packer.pack_key(run) == usual}
    assert together == set(half)


@pytest.fixture
def single(planner, corpus):
    """A fleet of single runs, with a worker on a good node and one on a bad node."""
    fleet = Fleet(planner, Packer(corpus, 0))
    ask(fleet, "good", node="good")
    ask(fleet, "bad", node="bad")
    return fleet


def run_of(fleet, name):
    (run,) = fleet.workers[name].training
    return run


def next_of_good(fleet):
    """Let the worker on the good node finish its run; return the next one."""
    fleet.ended("good", Ended(run_of(fleet, "good"), "finished"))
    (run,) = ask(fleet, "good", node="good", opened=[]).members
    return run


def test_a_run_that_died_on_a_node_is_tried_on_another(single):
    run = run_of(single, "bad")
    dies(single, "bad", node="bad")
    assert ask(single, "new", node="bad").members != [run]
    assert next_of_good(single) == run


def test_a_run_that_failed_on_a_node_is_tried_on_another(single):
    run = run_of(single, "bad")
    single.ended("bad", Ended(run, "failed", "RuntimeError: no library"))
    assert ask(single, "bad", node="bad", opened=[]).members != [run]
    assert next_of_good(single) == run


def test_a_failure_on_two_machines_decides(single):
    run = run_of(single, "bad")
    single.ended("bad", Ended(run, "failed", "RuntimeError: no library"))
    next_of_good(single)
    single.ended("good", Ended(run, "failed", "RuntimeError: a bug"))
    (failed,) = single.planner.failed_runs
    assert failed.reason == "RuntimeError: a bug"
    assert failed.nodes == ["bad", "good"]
    assert failed.ended


def test_the_runs_of_a_pack_that_died_join_packs_on_another_node(fleet):
    died = ask(fleet, "dies", live=3, node="bad").members
    second = ask(fleet, "second", live=3, node="bad").members
    other = ask(fleet, "other", live=3, node="good").members
    dies(fleet, "dies", node="bad")
    fleet.workers["second"].settled = True  # it has trained an epoch
    on_bad = ask(fleet, "second", live=2, node="bad").members
    on_good = ask(fleet, "other", live=2, node="good").members
    assert set(on_bad) == set(second)
    assert set(on_good) == set(other) | set(died)


def test_a_node_works_again_once_runs_that_died_there_are_pruned(fleet):
    """They waited at a rung, and train no epoch that would clear it."""
    bad = ask(fleet, "bad", live=2, node="bad").members
    members = ask(fleet, "good", live=2, node="good").members
    ask(fleet, "bad", [(run, epoch(1)) for run in bad], node="bad")
    dies(fleet, "bad", node="bad")
    for number in (1, 1, 2):  # `good` repeats what `bad` has lost
        reports = [(run, epoch(number, 3.0 + i)) for i, run in enumerate(members)]
        reply = ask(fleet, "good", reports, node="good")
        for run in reply.release:
            fleet.released("good", run)
        members = reply.members
        if not members:
            members = ask(fleet, "good", node="good").members
    statuses = {run.status for run in map(fleet.planner.find, bad) if run}
    assert "pruned" in statuses
    ask(fleet, "new", node="bad")
    assert not fleet.workers["new"].avoid


class BadCluster:
    """Five nodes with a worker each: two fail all they get, and packs with one run die."""

    def __init__(self, fleet, seed):
        self.fleet = fleet
        self.draws = random.Random(seed)
        poison = self.draws.choice(fleet.planner.ready())
        self.poison = poison.id
        self.workers = {f"worker {i}": f"node {i}" for i in range(5)}

    def step(self, number):
        """Let a random worker die, or report an epoch of its runs."""
        name = self.draws.choice(list(self.workers))
        node = self.workers[name]
        training = {}
        if name in self.fleet.workers:
            training = self.fleet.workers[name].training.copy()
        is_bad = self.poison in training or node in ("node 0", "node 1")
        # A worker without runs lives also on a bad node.
        if training and is_bad:
            del self.workers[name]
            self.workers[f"new {number}"] = node
            reason = self.draws.choice(["", "RuntimeError: no library"])
            dies(self.fleet, name, reason, node)
        else:
            self.report(name, training, number)

    def report(self, name, training, number):
        reports = []
        for run in training.values():
            loss = 3 + self.draws.random()
            reports.append((run.id, epoch(run.trained + 1, loss)))
        node = self.workers[name]
        reply = ask(self.fleet, name, reports, live=5, node=node, now=float(number))
        for run_id, record in reports:
            if record["epoch"] >= training[run_id].budget:
                test = {"token": record["valid_token"]}
                self.fleet.ended(name, Ended(run_id, "finished", test=test))
        if reply is not None:
            for run_id in reply.prune:
                self.fleet.ended(name, Ended(run_id, "pruned"))
            for run_id in reply.release:
                self.fleet.released(name, run_id)


@pytest.mark.parametrize("seed", range(3))
def test_runs_fail_on_bad_nodes_only_if_they_fail_everywhere(fleet, seed):
    cluster = BadCluster(fleet, seed)
    for number in itertools.count():
        assert number < 3000, "the sweep does not end"
        if fleet.done:
            break
        cluster.step(number)
    assert [run.id for run in fleet.planner.failed_runs] == [cluster.poison]


def test_interruptions_and_deaths_with_progress_are_no_failure(fleet):
    for name in map(str, range(12)):
        ask(fleet, name)
        dies(fleet, name, interrupted=True)
    for number in range(3):
        name = f"died {number}"
        members = ask(fleet, name).members
        ask(fleet, name, [(run, epoch(number + 1)) for run in members])
        dies(fleet, name)
    assert not fleet.planner.failed_runs
    assert len(ask(fleet, "last").members) > 1


def test_late_and_repeated_messages_change_nothing(fleet):
    run, *_ = ask(fleet, "dead").members
    dies(fleet, "dead", interrupted=True)
    # These messages come from a worker that the fleet has given up.
    fleet.ended("dead", Ended(run, "finished"))
    fleet.released("dead", run)
    members = ask(fleet, "new").members
    assert run in members
    reply = ask(fleet, "new", opened=[])  # it has lost contact and closed its runs
    joining = [job.config["run"] for job in reply.join]
    assert reply.members == members == joining
    reports = [(run, epoch(1)) for run in members]
    first = ask(fleet, "new", reports)
    repeated = ask(fleet, "new", reports)
    assert repeated.members == first.members


@pytest.fixture
def halves(fleet):
    """Return a fleet whose two workers have half of the runs each; an epoch takes 10 seconds."""
    for name in ("fast", "slow"):
        ask(fleet, name, live=2)
    for name, worker in fleet.workers.items():
        fleet.pace.add(worker.key, len(worker.training), 10.0, worker=name)
        worker.epoch_seconds = 10.0
        worker.trained.add(worker.key)
        worker.replied_at = 10.0
    return fleet


def test_a_worker_without_a_report_for_ten_usual_epochs_is_named_with_its_run(halves):
    reply = ask(halves, "fast", now=20.0)
    assert "fast" not in halves.hung(119.0)
    reason = halves.hung(121.0)["fast"]
    assert reply.members[0] in reason
    assert reason.endswith("has not reported for 101 s; its epochs usually take 10.0 s")


def test_a_worker_of_unknown_speed_does_not_hang(halves):
    ask(halves, "fast", now=20.0)
    halves.workers["fast"].trained.clear()
    assert "fast" not in halves.hung(121.0)


def test_a_worker_that_hangs_in_the_first_epoch_of_all_is_named_and_has_more_time_later(fleet):
    run, *_ = ask(fleet, "hangs", live=1).members  # no pace is known yet
    assert not fleet.hung(1e9)
    fleet.pace.add("another", len(fleet.workers["hangs"].training), 0.5, first=True)
    assert not fleet.hung(249.0)
    assert fleet.hung(251.0)
    fleet.health.failed([run], "hangs", ["hangs"])  # it may be honest
    assert not fleet.hung(749.0)
    assert fleet.hung(751.0)
