"""Costs: packs of two sizes tell what a pack costs; workers are divided by it; epochs left."""

import itertools

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


def after(epochs, seconds=lambda size: 1.0, sizes=(1,), worker_w=1, shape_b=1):
    """Return the pace after epochs of all shapes on all workers; seconds(size) of the usual one."""
    workers = {"w": worker_w, "x": 1, "y": 1, "z": 1}
    shapes = {"a": 1, "b": shape_b, "c": 1}
    pace = Pace()
    for size in itertools.islice(itertools.cycle(sizes), epochs):
        for worker, shape in itertools.product(workers, shapes):
            needed = seconds(size) * workers[worker] * shapes[shape]
            pace.add(shape, size, needed, worker=worker)
    return pace


SLOWNESS = {"w": 4, "x": 1, "unknown": 1}


@pytest.mark.parametrize("worker", SLOWNESS)
def test_slow_workers_are_distinguished_from_slow_shapes(worker):
    pace = after(12, worker_w=4, shape_b=2)
    assert pace.slowness(worker) == pytest.approx(SLOWNESS[worker])


@pytest.mark.parametrize("worker", ["w", "x", "y", "z"])
def test_a_slow_shape_makes_no_worker_slow(worker):
    pace = after(12, shape_b=10)
    assert pace.slowness(worker) == pytest.approx(1)


def test_a_worker_with_larger_packs_is_not_faster_once_two_sizes_are_known():
    # Until then a pack is thought to take as long as its runs one after another.
    pace = Pace()
    for worker, size in (("large", 8), ("small", 2), ("small", 2), ("small", 1)):
        pace.add("a", size, 0.97 + 0.03 * size, worker=worker)
    assert pace.slowness("small") == pytest.approx(1, abs=0.05)


def test_a_worker_that_is_alone_with_its_shape_is_half_to_blame():
    alone = Pace()
    alone.add("a", 1, 1.0, worker="x")
    alone.add("b", 1, 4.0, worker="w")
    assert alone.slowness("w") == pytest.approx(2)


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_packs_of_two_sizes_tell_what_a_larger_pack_costs(slope):
    def seconds(size):
        return 2 * (1 + slope * (size - 1))

    pace = after(12, seconds, sizes=(1, 4))
    # The assumption of 0.3 is not needed.
    cost = pace.cost("a", 0.3)
    assert cost.seconds(1) == pytest.approx(2, rel=0.05)
    assert cost.seconds(8) == pytest.approx(seconds(8), rel=0.05)


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_of_packs_of_one_size_the_assumption_decides(slope):
    pace = after(3, lambda size: 2.0, sizes=(4,))
    cost = pace.cost("a", slope)
    of_one = 2.0 / (1 + 3 * slope)
    of_eight = of_one * (1 + 7 * slope)
    assert cost.seconds(8) == pytest.approx(of_eight)


def test_shapes_of_equal_epochs_cost_the_same():
    pace = after(1, lambda size: 2.0)
    for shape in ("a", "new", "other"):
        cost = pace.cost(shape, 1.0)
        assert cost.each == pytest.approx(2.0)


def test_each_epoch_changes_what_is_known_of_its_shape_and_of_new_ones():
    pace = after(1, lambda size: 2.0)
    pace.add("a", 1, 8.0, worker="w")
    known = pace.cost("a", 1.0).each
    new = pace.cost("new", 1.0).each
    # A new shape is expected to be like those that are known.
    assert known > new > 2.0
    assert pace.cost("other", 1.0).each == new


def load(runs, cost, limit=100, epochs=10, key="a"):
    return Load(key, runs, epochs, cost, limit)


AS_ITS_RUNS = Cost(0, 1)
AS_A_RUN = Cost(1, 0)


def numbers_of(work, workers):
    """Return how many workers each shape gets."""
    numbers, _ = divide(work, workers)
    return numbers


BOTH = Cost(1, 1)
SHARED = [
    (AS_A_RUN, 4, 1),
    (AS_ITS_RUNS, 4, 4),
    (AS_ITS_RUNS, 50, 30),  # one each
    (BOTH, 4, 4),
]


@pytest.mark.parametrize(("cost", "workers", "expected"), SHARED)
def test_the_cost_of_a_pack_decides_how_many_workers_share_it(cost, workers, expected):
    work = [load(30, cost)]
    assert numbers_of(work, workers) == {"a": expected}


def test_the_limit_of_a_pack_needs_more_workers():
    work = [load(30, AS_A_RUN, limit=10)]
    assert numbers_of(work, 5) == {"a": 3}


def test_further_workers_go_to_the_shape_that_ends_last():
    short = load(4, AS_ITS_RUNS)
    long = load(12, AS_ITS_RUNS, key="b")
    assert numbers_of([short, long], 4) == {"a": 1, "b": 3}


def with_shapes(loads):
    """Return the loads under different names."""
    return [own._replace(key=shape) for shape, own in zip(SHAPES, loads, strict=False)]


COSTS = st.builds(Cost, st.floats(0, 5), st.floats(0, 5)).filter(lambda cost: sum(cost) > 0.1)
LOADS = st.builds(load, st.integers(1, 60), COSTS, st.integers(1, 40), st.integers(1, 12))
WORK = st.lists(LOADS, min_size=1, max_size=3).map(with_shapes)


@given(WORK, st.integers(1, 20))
def test_no_worker_is_given_twice(work, workers):
    numbers = numbers_of(work, workers)
    assert sum(numbers.values()) <= max(workers, len(work))
    for own in work:
        assert 1 <= numbers[own.key] <= own.runs


@given(WORK, st.integers(1, 20))
def test_a_further_worker_never_makes_the_runs_end_later(work, workers):
    numbers, times = divide(work, workers)
    assert times == sorted(times, reverse=True)
    assert len(times) <= workers
    # With fewer workers than shapes, some of them train one after another.
    if workers >= len(work):
        ends = [own.seconds(numbers[own.key]) for own in work]
        assert times[-1] == pytest.approx(max(ends), rel=1e-5)


@given(st.floats(2, 60), st.floats(0, COMPILATION), st.integers(1, 16))
def test_compilation_in_the_first_epoch_is_no_part_of_the_pace(seconds, compilation, members):
    pace = Pace()
    with_compilation = seconds + compilation
    pace.add("a", members, with_compilation, first=True)
    pace.add("a", members, seconds)
    pace.add("b", members, with_compilation, first=True)
    # A worker does not hang while it compiles a shape.
    for shape, patience in (("a", 0), ("unknown", 20)):
        first = pace.expected(shape, members, first=True)
        later = pace.expected(shape, members, first=False)
        assert first == pytest.approx((with_compilation, patience))
        assert later == pytest.approx((seconds, 0))


@pytest.fixture
def fleet(planner, corpus):
    console = Console(RichConsole(), quiet=True)
    return Fleet(planner, Packer(corpus, None), [console])


def test_a_worker_compiles_each_shape_once_and_repeated_reports_are_no_epochs(fleet):
    added = []

    def add(shape, size, seconds, *, first, worker):
        added.append((shape, size, seconds, first))

    fleet.pace.add = add
    fleet.exchange(Exchange("w"), live=1, now=0.0)
    worker = fleet.workers["w"]
    worker.epoch_seconds = 10.0
    slow, *others = worker.training.values()
    # The second report repeats the first; in the third, one run has no new epoch.
    for number in (1, 1, 2):
        reports = [(slow.id, {"epoch": 1})]
        reports += [(run.id, {"epoch": number}) for run in others]
        fleet._add_pace(worker, reports)
        slow.add_epoch(1, 3.0)
        for run in others:
            run.add_epoch(number, 3.0)
    count = len(others)
    assert count > 1
    first, second = added
    assert first == (worker.key, count + 1, 10.0, True)
    assert second == (worker.key, count, 10.0, False)


def test_the_epochs_left_of_a_study_fall_to_zero_and_their_total_is_what_is_trained(planner, fleet):
    totals = []
    while not fleet.done:
        drive(fleet, steps=3)
        if fleet.workers:
            fleet.give_back(fleet.gone("w"), interrupted=True)
        total = epochs_left(planner) + epochs_done(planner)
        totals.append(total)
    assert epochs_left(planner) == 0
    # What is left is estimated: how many runs are pruned is not known.
    assert totals == pytest.approx([total] * len(totals), rel=0.25)
