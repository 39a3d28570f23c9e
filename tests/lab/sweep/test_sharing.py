"""Workers without runs take some; slow ones leave theirs to fast ones; all runs are trained."""

import random

import pytest

from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.sweep.fleet.costs import Pace
from lmzoo.lab.sweep.fleet.sharing import PATIENCE, ReadyRuns, Sharing, WorkerState


class AnyPacker:
    """Packs of at most four runs."""

    def max_members(self, run: PlannedRun, memory: int) -> int:
        return 4

    def shares_estimate(self, run: PlannedRun) -> bool:
        return False


def many_shapes(shapes: int, each: int) -> Sharing:
    ready = ReadyRuns(lambda run: run.label)
    for label in map(str, range(shapes)):
        for index in range(each):
            ready.add(planned(label, index))
    return Sharing(ready, AnyPacker(), Pace())


def planned(label: str, index: int) -> PlannedRun:
    return PlannedRun(f"{label}-{index}", label, "tune", index, {}, budget=10)


def take(sharing: Sharing, workers: dict[str, WorkerState], name: str, live: int = 0) -> int:
    """Let a worker take runs; return how many."""
    worker = workers[name]
    sharing.division(workers, live, 0.0)
    if not worker.training:
        worker.key = sharing.choose(worker)
    if not worker.key:
        return 0
    runs = sharing.ready.take(worker.key, sharing.room(worker))
    for run in runs:
        sharing.add(worker, run)
    return len(runs)


@pytest.mark.parametrize(("shapes", "each"), [(1, 40), (3, 7), (30, 2)])
def test_no_worker_that_asks_waits_while_there_are_runs_and_all_are_trained(shapes, each):
    sharing = many_shapes(shapes, each)
    draws = random.Random(1)
    workers = workers_named("u", "v", "w", "x", "y", "z")
    trained = 0
    while trained < shapes * each:
        name = draws.choice(list(workers))
        worker = workers[name]
        for run_id in list(worker.training):
            if draws.random() < 0.5:
                sharing.remove(worker, run_id)
                trained += 1
        are_waiting = len(sharing.ready) > 0
        take(sharing, workers, name)
        if are_waiting:
            assert worker.training
    assert not sharing.ready


def workers_named(*names: str) -> dict[str, WorkerState]:
    """Return workers on nodes of these names."""
    return {name: WorkerState(node=name) for name in names}


def room(sharing: Sharing, workers: dict[str, WorkerState], name: str, now: float) -> int:
    """Return how many runs a worker may take where four could be at work."""
    sharing.division(workers, 4, now)
    return sharing.room(workers[name])


@pytest.mark.parametrize(("runs", "shares"), [(5, [2, 1, 1, 1]), (7, [2, 2, 2, 1]), (3, [1, 1, 1])])
def test_no_worker_is_without_runs_while_another_one_has_two(runs, shares):
    sharing = many_shapes(1, runs)
    workers = workers_named("u", "v", "w", "x")
    taken = [take(sharing, workers, name, live=4) for name in workers]
    assert taken == shares + [0] * (4 - len(shares))


@pytest.fixture
def waiting():
    """Eight runs, of which the only worker has two: three more workers are awaited."""
    sharing = many_shapes(1, 8)
    workers = workers_named("a")
    assert take(sharing, workers, "a", live=4) == 2
    sharing.division(workers, 4, PATIENCE + 1)
    return sharing, workers


def test_runs_are_kept_for_workers_that_come_and_not_for_ever(waiting):
    sharing, workers = waiting
    assert room(sharing, workers, "a", 2 * PATIENCE) == 2


def test_workers_that_did_not_come_are_not_waited_for_in_the_next_stage(waiting):
    sharing, workers = waiting
    sharing.division(workers, 1, PATIENCE + 2)  # the end of a stage needs no other worker
    assert room(sharing, workers, "a", PATIENCE + 3) == 2


def test_runs_are_kept_for_workers_that_are_asked_for_when_there_are_more_runs():
    """The cluster had room for them for a long time, and the sweep did not want them."""
    sharing = many_shapes(1, 1)
    workers = workers_named("a", "b")
    assert take(sharing, workers, "a", live=4) == 1
    sharing.division(workers, 4, PATIENCE + 1)
    for index in range(1, 4):
        sharing.ready.add(planned("0", index))
    workers["b"].key = "0"
    assert room(sharing, workers, "b", PATIENCE + 2) == 1


@pytest.fixture
def slow_and_fast():
    """A slow worker that has runs, and a fast one that has none."""
    sharing = many_shapes(2, 4)
    workers = workers_named("slow", "fast")
    assert take(sharing, workers, "slow")
    return sharing, workers


def measure(sharing: Sharing, runs: int, **seconds: float) -> None:
    """Add an epoch of each worker."""
    for name, needed in seconds.items():
        sharing.pace.add("0", runs, needed, worker=name)


def test_a_worker_of_unknown_pace_keeps_its_runs(slow_and_fast):
    sharing, workers = slow_and_fast
    sharing.division(workers, 2, 0.0)
    assert sharing.surplus(workers["slow"]) == 0


def test_a_slow_worker_leaves_its_runs_to_a_fast_one_without_runs(slow_and_fast):
    sharing, workers = slow_and_fast
    sharing.division(workers, 2, 0.0)
    measure(sharing, 1, slow=4.0, fast=1.0)
    slow = workers["slow"]
    assert sharing.surplus(slow) == len(slow.training)


def test_a_fast_worker_takes_the_runs_that_a_slow_one_has_left(slow_and_fast):
    sharing, workers = slow_and_fast
    sharing.division(workers, 2, 0.0)
    measure(sharing, 1, slow=4.0, fast=1.0)
    workers["slow"].training.clear()
    assert not sharing.choose(workers["slow"])
    assert sharing.choose(workers["fast"])


@pytest.mark.parametrize(("runs", "left"), [(6, 2), (12, 0)], ids=["others have room", "no room"])
def test_a_slow_worker_leaves_a_shape_that_fast_workers_train_too(runs, left):
    """It would end last; without it the division is among the fast workers."""
    sharing = many_shapes(1, runs)
    workers = workers_named("slow", "fast", "other")
    for name in workers:
        assert take(sharing, workers, name) == runs / 3
    measure(sharing, runs, slow=8.0, fast=1.0, other=1.0)
    # Without the slow worker.
    assert sharing.division(workers, 3, 0.0) == {"0": 2}
    assert sharing.surplus(workers["slow"]) == left
    assert sharing.surplus(workers["fast"]) == 0
