"""A fleet gives every pending run to one worker at a time, whatever happens to the workers."""

import itertools
import math
import random

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
    state = fleet.workers.get(name)
    if opened is None:
        opened = [*state.training, *state.leaving] if state else []
    message = Exchange(name, opened, reports, memory)
    return fleet.exchange(message, live=live, now=now, node=node)


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
    tests = [test for _, _, test in events.ended if test]
    assert tests
    assert all(math.isfinite(test["token"]) for test in tests)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("size", "workers", "steps"), [(0, 3, 60), (3, 2, 25)])
def test_deaths_and_moves_change_no_digit_of_single_runs_and_packs_by_rounding_only(
    study, corpus, corpus_fields, tmp_path, undisturbed, seed, size, workers, steps
):
    deaths = random.Random(seed).sample(range(steps), steps // 5)
    dead = {"deaths": deaths[::2], "lost": deaths[1::2]}
    events, _ = fleet_sweep(
        study, corpus, corpus_fields, tmp_path, size=size, workers=workers, seed=seed, **dead
    )
    assert_close(outcome(tmp_path), outcome(undisturbed), tolerance=2e-5 if size else 0.0)
    assert len(events.epochs) == len(set(events.epochs))


def test_a_worker_that_comes_late_gets_runs_of_a_full_one(fleet):
    first = ask(fleet, "first").members
    assert ask(fleet, "second") is None
    assert fleet.idle == {"second"}
    fleet.workers["first"].settled = True  # it has trained an epoch
    reply = ask(fleet, "first")
    moving = len(first) // 2
    assert (len(reply.members), len(reply.release)) == (len(first) - moving, moving)
    for run in reply.release:
        fleet.released("first", run)
    taken = ask(fleet, "second", live=2)
    assert set(taken.members) == set(reply.release)
    assert [job.epoch for job in taken.join] == [0] * moving
    assert not any(job.is_new for job in taken.join)


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
    assert bool(ask(fleet, "first", live=2, memory=2**30, now=now).release) is moves


@pytest.mark.parametrize(
    ("reason", "killed"), [("", False), ("a bug", False), ("no heartbeat for 60 s", True)]
)
def test_the_members_of_a_pack_that_dies_are_tried_in_halves(fleet, reason, killed):
    """On the only node: an error decides at once, a death the fourth time."""
    sizes = []
    while not fleet.planner.failed_runs:
        members = ask(fleet, str(len(sizes))).members
        sizes.append(len(members))
        dies(fleet, str(len(sizes) - 1), reason, killed=killed)
    halving = [size for size in sizes if size > 1]
    assert all(after == -(-before // 2) for before, after in itertools.pairwise(halving))
    assert len(sizes) - len(halving) == (1 if reason and not killed else DEATHS_ON_THE_ONLY_NODE)
    (run,) = fleet.planner.failed_runs
    assert run.reason == (reason or "its workers died without progress")


def test_runs_that_were_apart_share_packs_again_after_an_epoch(fleet):
    runs = fleet.planner.ready()
    (usual,) = {fleet.packer.pack_key(run) for run in runs}
    ask(fleet, "dies")
    dies(fleet, "dies")
    assert usual not in map(fleet.packer.pack_key, runs)
    half = ask(fleet, "works").members
    assert fleet.workers["works"].key != usual
    reply = ask(fleet, "works", [(run, epoch(1)) for run in half])
    assert {*half} & {*reply.members} or {*reply.release} == {*half}
    assert {run.id for run in runs if fleet.packer.pack_key(run) == usual} == {*half}


@pytest.mark.parametrize("fails", ["dies", "raises"])
def test_a_run_that_failed_on_a_node_is_tried_on_another(planner, corpus, fails):
    fleet = Fleet(planner, Packer(corpus, 0))  # single runs
    (other,) = ask(fleet, "w2", node="good").members
    (run,) = ask(fleet, "w1", node="bad").members
    if fails == "dies":
        dies(fleet, "w1", node="bad")
        refused = ask(fleet, "w1'", node="bad").members
    else:
        fleet.ended("w1", Ended(run, "failed", "RuntimeError: no library"))
        refused = ask(fleet, "w1", node="bad", opened=[]).members
    assert refused != [run]
    fleet.ended("w2", Ended(other, "finished"))
    assert ask(fleet, "w2", node="good", opened=[]).members == [run]
    fleet.ended("w2", Ended(run, "failed", "RuntimeError: a bug"))
    if fails == "raises":
        (failed,) = planner.failed_runs
        assert (failed.reason, failed.nodes) == ("RuntimeError: a bug", ["bad", "good"])
        assert failed.ended, "a failure on two machines decides"


def test_the_runs_of_a_pack_that_died_join_packs_on_another_node(fleet):
    nodes = {"dies": "bad", "second": "bad", "other": "good"}
    packs = {name: ask(fleet, name, live=3, node=node).members for name, node in nodes.items()}
    dies(fleet, "dies", node="bad")
    fleet.workers["second"].settled = True  # it has trained an epoch
    assert {*ask(fleet, "second", live=2, node="bad").members} == {*packs["second"]}
    joined = {*packs["other"], *packs["dies"]}
    assert {*ask(fleet, "other", live=2, node="good").members} == joined


def test_a_node_works_again_once_runs_that_died_there_are_pruned(fleet):
    """They waited at a rung, and train no epoch that would clear it."""
    bad, members = (ask(fleet, node, live=2, node=node).members for node in ("bad", "good"))
    ask(fleet, "bad", [(run, epoch(1)) for run in bad], node="bad")
    dies(fleet, "bad", node="bad")
    for number in (1, 1, 2):  # `good` repeats what `bad` has lost
        reports = [(run, epoch(number, 3.0 + i)) for i, run in enumerate(members)]
        reply = ask(fleet, "good", reports, node="good")
        for run in reply.release:
            fleet.released("good", run)
        members = reply.members or ask(fleet, "good", node="good").members
    assert any(run.status == "pruned" for run in map(fleet.planner.find, bad) if run)
    ask(fleet, "new", node="bad")
    assert not fleet.workers["new"].avoid


@pytest.mark.parametrize("seed", range(3))
def test_runs_fail_on_bad_nodes_only_if_they_fail_everywhere(planner, corpus, seed):
    """Workers in any order; two of five nodes fail all they get, and packs with one run die."""
    draws, names = random.Random(seed), itertools.count()
    fleet = Fleet(planner, Packer(corpus, None))
    poison = draws.choice([run.id for run in planner.ready()])
    workers = {str(next(names)): f"node {i}" for i in range(5)}
    for step in itertools.count():
        assert step < 3000, "the sweep does not end"
        if fleet.done:
            break
        name = draws.choice([*workers])
        node, state = workers[name], fleet.workers.get(name)
        training = {**state.training} if state else {}
        if training and (poison in training or node in ("node 0", "node 1")):
            del workers[name]
            workers[str(next(names))] = node
            dies(fleet, name, draws.choice(["", "RuntimeError: no library"]), node)
            continue
        reports = [(r.id, epoch(r.trained + 1, 3 + draws.random())) for r in training.values()]
        reply = ask(fleet, name, reports, live=5, node=node, now=float(step))
        for run_id, record in reports:
            if record["epoch"] >= training[run_id].budget:
                test = {"token": record["valid_token"]}
                fleet.ended(name, Ended(run_id, "finished", test=test))
        for run_id in reply.prune if reply else ():
            fleet.ended(name, Ended(run_id, "pruned"))
        for run_id in reply.release if reply else ():
            fleet.released(name, run_id)
    assert [run.id for run in planner.failed_runs] == [poison]


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
    run = ask(fleet, "dead").members[0]
    dies(fleet, "dead", interrupted=True)
    fleet.ended("dead", Ended(run, "finished"))
    fleet.released("dead", run)
    members = ask(fleet, "new").members
    assert run in members
    reply = ask(fleet, "new", opened=[])  # it has lost contact and closed its runs
    assert reply.members == members == [job.config["run"] for job in reply.join]
    reports = [(run, epoch(1)) for run in members]
    assert ask(fleet, "new", reports).members == ask(fleet, "new", reports).members


@pytest.fixture
def halves(fleet):
    """Return a fleet whose two workers have half of the runs each; an epoch takes 10 seconds."""
    packs = {name: ask(fleet, name, live=2).members for name in ("fast", "slow")}
    for name, pack in packs.items():
        worker = fleet.workers[name]
        fleet.pace.add(worker.key, len(pack), 10.0, worker=name)
        worker.epoch_seconds = 10.0
        worker.trained.add(worker.key)
        worker.replied_at = 10.0
    return fleet, packs


def test_a_worker_without_a_report_for_ten_usual_epochs_is_named_with_its_run(halves):
    fleet, _ = halves
    reply = ask(fleet, "fast", now=20.0)
    assert "fast" not in fleet.hung(119.0)
    reason = fleet.hung(121.0)["fast"]
    assert reply.members[0] in reason
    assert reason.endswith("has not reported for 101 s; its epochs usually take 10.0 s")
    fleet.workers["fast"].trained.clear()
    assert "fast" not in fleet.hung(121.0), "the speed of a new worker is not known"


def test_a_worker_that_hangs_in_the_first_epoch_of_all_is_named_and_has_more_time_later(fleet):
    run, *_ = ask(fleet, "hangs", live=1).members  # no pace is known yet
    assert not fleet.hung(1e9)
    fleet.pace.add("another", len(fleet.workers["hangs"].training), 0.5, first=True)
    assert not fleet.hung(249.0)
    assert fleet.hung(251.0)
    fleet.health.failed([run], "hangs", ["hangs"])  # it may be honest
    assert not fleet.hung(749.0)
    assert fleet.hung(751.0)
