"""Costs: packs of two sizes tell what a pack costs; workers are divided by it; epochs left."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as RichConsole

from lmzoo.lab.sweep.fleet.costs import (
    COMPILATION,
    Cost,
    Load,
    Pace,
    divide,
    epochs_done,
    epochs_left,
)
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Exchange
from lmzoo.lab.sweep.screen.console import Console

from .fake_fleet import drive

SHAPES = ("a", "b", "c")


def after(epochs, seconds, sizes=(1,)):
    """Return the pace after epochs of all shapes on all workers; seconds(worker, shape, size)."""
    pace = Pace()
    for i in range(epochs):
        for worker in "wxyz":
            for shape in SHAPES:
                size = sizes[i % len(sizes)]
                pace.add(shape, size, seconds(worker, shape, size), worker=worker)
    return pace


def test_slow_workers_are_distinguished_from_slow_shapes():
    of_worker = {"w": 4, "x": 1, "y": 1, "z": 1}
    of_shape = {"a": 1, "b": 2, "c": 1}
    pace = after(12, lambda worker, shape, size: of_worker[worker] * of_shape[shape])
    assert [pace.slowness(worker) for worker in "wx?"] == pytest.approx([4, 1, 1])


def test_a_slow_shape_makes_no_worker_slow():
    pace = after(12, lambda worker, shape, size: 10 if shape == "b" else 1)
    assert [pace.slowness(worker) for worker in "wxyz"] == pytest.approx([1] * 4)


def test_a_worker_that_is_alone_with_its_shape_is_half_to_blame():
    alone = Pace()
    alone.add("a", 1, 1.0, worker="x")
    alone.add("b", 1, 4.0, worker="w")
    assert alone.slowness("w") == pytest.approx(2)


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_packs_of_two_sizes_tell_what_a_larger_pack_costs(slope):
    pace = after(12, lambda _, shape, size: 2 * (1 + slope * (size - 1)), sizes=(1, 4))
    cost = pace.cost("a", 0.3)
    assert (cost.seconds(1), cost.seconds(8)) == pytest.approx((2, 2 * (1 + 7 * slope)), rel=0.05)
    of_one_size = after(3, lambda *_: 2.0, sizes=(4,))
    expected = pytest.approx(2.0 * (1 + 7 * slope) / (1 + 3 * slope))
    assert of_one_size.cost("a", slope).seconds(8) == expected, "the assumption decides"


def test_each_epoch_changes_what_is_known_of_its_shape_and_of_new_ones():
    pace = after(1, lambda *_: 2.0)
    before = [pace.cost(shape, 1.0).each for shape in ("a", "new", "other")]
    assert before == pytest.approx([2.0, 2.0, 2.0])
    pace.add("a", 1, 8.0, worker="w")
    known, new, other = (pace.cost(shape, 1.0).each for shape in ("a", "new", "other"))
    assert known > new == other > 2.0


def load(runs, cost, limit=100, epochs=10, key="a"):
    return Load(key, runs, epochs, cost, limit)


@pytest.mark.parametrize(
    ("cost", "workers", "expected"),
    [
        (Cost(1, 0), 4, 1),  # a pack costs as much as a run: one worker
        (Cost(0, 1), 4, 4),  # as its runs: all workers
        (Cost(0, 1), 50, 30),  # one each
        (Cost(1, 1), 4, 4),
    ],
)
def test_the_cost_of_a_pack_decides_how_many_workers_share_it(cost, workers, expected):
    assert divide([load(30, cost)], workers)[0] == {"a": expected}


def test_the_limit_of_a_pack_needs_more_workers():
    assert divide([load(30, Cost(1, 0), limit=10)], 5)[0] == {"a": 3}


def test_further_workers_go_to_the_shape_that_ends_last():
    work = [load(4, Cost(0, 1)), load(12, Cost(0, 1), key="b")]
    assert divide(work, 4)[0] == {"a": 1, "b": 3}


COSTS = st.builds(Cost, st.floats(0, 5), st.floats(0, 5)).filter(lambda cost: sum(cost) > 0.1)
LOADS = st.lists(
    st.builds(load, st.integers(1, 60), COSTS, st.integers(1, 40), st.integers(1, 12)),
    min_size=1, max_size=3,
).map(lambda own: [x._replace(key=key) for key, x in zip(SHAPES, own, strict=False)])  # fmt: skip


@given(LOADS, st.integers(1, 20))
def test_no_worker_is_given_twice_and_a_further_one_never_makes_the_runs_end_later(work, workers):
    numbers, times = divide(work, workers)
    assert sum(numbers.values()) <= max(workers, len(work))
    assert all(1 <= numbers[own.key] <= own.runs for own in work)
    assert times == sorted(times, reverse=True)
    assert len(times) <= workers
    if workers >= len(work):
        latest = max(own.seconds(numbers[own.key]) for own in work)
        assert times[-1] == pytest.approx(latest, rel=1e-5)


@given(st.floats(2, 60), st.floats(0, COMPILATION), st.integers(1, 16))
def test_compilation_in_the_first_epoch_is_no_part_of_the_pace(seconds, compilation, members):
    pace = Pace()
    pace.add("a", members, seconds + compilation, first=True)
    pace.add("a", members, seconds)
    pace.add("b", members, seconds + compilation, first=True)
    for shape in "ac":  # a worker does not hang while it compiles a shape
        most = seconds + compilation, 0 if shape == "a" else 20
        assert pace.expected(shape, members, first=True) == pytest.approx(most)
        assert pace.expected(shape, members, first=False) == pytest.approx((seconds, 0))


def test_a_worker_compiles_each_shape_once_and_repeated_reports_are_no_epochs(planner):
    added = []
    fleet = Fleet(planner, Packer(planner.points[0].point.corpus, None))
    fleet.pace.add = lambda *facts, first, worker: added.append((*facts, first))
    fleet.exchange(Exchange("w"), live=1, now=0.0)
    worker = fleet.workers["w"]
    runs, worker.epoch_seconds = [*worker.training.values()], 10.0
    for epochs in ([1] * len(runs), [1] * len(runs), [1, *[2] * (len(runs) - 1)]):
        numbers = dict(zip(runs, epochs, strict=True))
        fleet._add_pace(worker, [(run.id, {"epoch": n}) for run, n in numbers.items()])
        for run, number in numbers.items():
            run.add_epoch(number, 3.0)
    key, count = worker.key, len(runs)
    assert count > 2
    assert added == [(key, count, 10.0, True), (key, count - 1, 10.0, False)]


def test_the_epochs_left_of_a_study_fall_to_zero_and_their_total_is_what_is_trained(planner):
    console = Console(RichConsole(), quiet=True)
    fleet = Fleet(planner, Packer(planner.points[0].point.corpus, None), [console])
    totals = []
    while not fleet.done:
        drive(fleet, steps=3)
        if fleet.workers:
            fleet.give_back(fleet.gone("w"), interrupted=True)
        totals.append(epochs_left(planner) + epochs_done(planner))
    assert epochs_left(planner) == 0
    assert all(math.isclose(total, totals[-1], rel_tol=0.25) for total in totals)
