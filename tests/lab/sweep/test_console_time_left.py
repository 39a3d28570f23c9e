"""The interval of the time left contains the truth wherever the truth is known."""

import heapq
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo.lab.sweep.fleet.costs import (
    COMPILATION,
    UNCERTAIN,
    UNSEEN,
    Interval,
    Pace,
    Work,
    describe,
    epochs_done,
    gain,
    time_left,
    work_left,
)
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Exchange
from lmzoo.lab.sweep.screen.console import Console

from .fake_fleet import drive

SHAPES = ("a", "b", "c")
WORK = st.lists(
    st.builds(
        Work,
        stage=st.integers(0, 2),
        shape=st.sampled_from(SHAPES),
        runs=st.integers(1, 20),
        epochs=st.integers(1, 12),
    ),
    min_size=1,
    max_size=8,
)
SECONDS = st.tuples(*(st.floats(0.1, 10) for _ in SHAPES))
WORKERS = st.integers(1, 12)


def _pace(seconds, sizes=(1,), slope=1.0):
    """Return the pace after many epochs of packs of these sizes."""
    pace = Pace()
    for shape, own in zip(SHAPES, seconds, strict=True):
        for i in range(40):
            n = sizes[i % len(sizes)]
            pace.add(shape, n, own * (1 + slope * (n - 1)))
    return pace


def _makespan(work, seconds, workers):
    """Return the time in which idle workers take the next run of a stage, stage after stage."""
    now = 0.0
    for stage in range(3):
        free = [now] * workers
        for part in work:
            for _ in range(part.runs if part.stage == stage else 0):
                end = heapq.heappop(free) + part.epochs * seconds[SHAPES.index(part.shape)]
                heapq.heappush(free, end)
        now = max(free)
    return now


@settings(max_examples=150)
@given(WORK, SECONDS, WORKERS)
def test_the_interval_contains_the_time_of_list_scheduling(work, seconds, workers):
    left = time_left(work, _pace(seconds), workers)
    assert left.low * 0.999 <= _makespan(work, seconds, workers) <= left.high * 1.001


@given(st.floats(0.1, 5), st.floats(0, 1), st.integers(1, 32), st.lists(st.integers(1, 16)))
def test_the_seconds_of_a_pack_are_within_their_bounds(seconds, slope, members, sizes):
    left = _pace((seconds,) * 3, (*sizes, 3), slope).seconds("a", members)
    truth = seconds * (1 + slope * (members - 1))
    assert left.low * 0.999 <= truth <= left.high * 1.001


def test_nothing_is_estimated_before_an_epoch_or_without_a_worker():
    work = [Work(0, "a", 3, 4)]
    assert time_left(work, Pace(), 2) is None
    assert time_left(work, _pace((1.0,) * 3), 0) is None
    assert time_left([], Pace(), 0) == (0, 0)


@given(st.floats(2, 60), st.floats(0, COMPILATION), st.integers(1, 16))
def test_compilation_in_the_first_epoch_is_no_part_of_the_pace(seconds, compilation, members):
    pace = Pace()
    pace.add("a", members, seconds + compilation, first=True)
    early = pace.seconds("a", members)
    assert early.low <= seconds * 1.001
    assert early.high >= seconds * 0.999
    pace.add("a", members, seconds)
    pace.add("b", members, seconds + compilation, first=True)
    for shape, spread in (("a", UNCERTAIN), ("b", UNSEEN)):
        low, high = pace.seconds(shape, members)
        assert low * (1 + spread) == pytest.approx(seconds) == high / (1 + spread)


def test_a_worker_compiles_each_shape_once_and_repeated_reports_are_no_epochs(planner):
    added = []
    fleet = Fleet(planner, Packer(planner.points[0].point.corpus, None))
    fleet.pace.add = lambda *facts, first, worker: added.append((*facts, first))
    fleet.exchange(Exchange("w", 0), live=1, now=0.0)
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


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (600, 700, "about 11 min left"),
        (600, 1200, "10 to 20 min left"),
        (30, 300, "30 s to 5 min left"),
        (1, 3, "about 2 s left"),
    ],
)
def test_a_wide_interval_is_shown_as_a_range(low, high, text):
    assert describe(Interval(low, high)) == text


@pytest.mark.parametrize(
    ("seconds", "runs", "workers", "said"),
    [
        (60.0, 20, 2, ", 54 min with 4 workers"),  # 50 without waiting for the last run
        (60.0, 2, 2, ""),  # each run is a chain
        (0.1, 40, 2, ""),  # it is soon done
    ],
)
def test_more_workers_are_named_where_they_buy_time(seconds, runs, workers, said):
    assert gain([Work(0, "a", runs, 10)], _pace((seconds,) * 3), workers) == said


def test_the_work_left_of_a_study_falls_to_zero_and_its_total_is_what_is_trained(planner):
    fleet = Fleet(
        planner, Packer(planner.points[0].point.corpus, None), [Console(as_json=False, quiet=True)]
    )
    totals = []
    while not fleet.done:
        drive(fleet, steps=3)
        if fleet.workers:
            fleet.give_back(fleet.gone("w"), interrupted=True)
        work = [*work_left(planner, fleet.packer)]
        left = sum(part.runs * part.epochs for part in work)
        totals.append(left + epochs_done(planner))
    assert left == 0
    truth = totals[-1]
    assert all(math.isclose(total, truth, rel_tol=0.25) for total in totals)
