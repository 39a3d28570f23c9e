"""Costs: slow workers are distinguished from slow shapes; placements are complete; the time left
is that of list scheduling, up to its bound.
"""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.lab.sweep.fleet.costs import (
    COMPILATION,
    PRECISION,
    STAY,
    Cost,
    Load,
    Pace,
    Slot,
    epochs_done,
    epochs_left,
    place,
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
    pace = after(12, lambda worker, shape, size: (4 if worker == "w" else 1) * (1 + (shape == "b")))
    for worker, seconds in zip("wxyz?", (8, 2, 2, 2, 2), strict=True):
        expected = pace.slowness(worker) * pace.cost("b", 1.0).seconds(1)
        assert expected == pytest.approx(seconds, rel=0.1), worker
    pace = after(12, lambda worker, shape, size: 10 if shape == "b" else 1)
    slowness = [pace.slowness(worker) for worker in "wxyz"]
    assert max(slowness) == pytest.approx(min(slowness), rel=0.01)


def test_a_shape_of_one_worker_only_is_half_its_own_fault():
    pace = Pace()
    for _ in range(6):
        pace.add("a", 1, 1.0, worker="x")
        pace.add("b", 1, 4.0, worker="w")
    assert 1.5 < pace.slowness("w") / pace.slowness("x") < 4
    for _ in range(6):
        pace.add("b", 1, 4.0, worker="x")  # the other worker needs as long
        pace.add("b", 1, 4.0, worker="w")
    assert pace.slowness("w") / pace.slowness("x") == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_packs_of_two_sizes_tell_what_a_larger_pack_costs(slope):
    pace = after(12, lambda _, shape, size: 2 * (1 + slope * (size - 1)), sizes=(1, 4))
    cost = pace.cost("a", 0.3)
    assert (cost.seconds(1), cost.seconds(8)) == pytest.approx((2, 2 * (1 + 7 * slope)), rel=0.05)
    of_one_size = after(3, lambda *_: 2.0, sizes=(4,))
    expected = pytest.approx(2.0 * (1 + 7 * slope) / (1 + 3 * slope))
    assert of_one_size.cost("a", slope).seconds(8) == expected, "the assumption decides"


MEMORIES = (0, 1)
COSTS = st.builds(Cost, st.floats(0, 5), st.floats(0, 5)).filter(lambda cost: sum(cost) > 0.1)


@st.composite
def loads(draw):
    keys = draw(st.lists(st.sampled_from(SHAPES), min_size=1, unique=True))
    limit = st.fixed_dictionaries({memory: st.integers(1, 40) for memory in MEMORIES})
    runs, epochs = st.integers(1, 60), st.integers(1, 12)
    return [Load(key, draw(runs), draw(epochs), draw(COSTS), draw(limit)) for key in keys]


SLOTS = st.lists(
    st.builds(
        Slot,
        slowness=st.floats(0.2, 8),
        memory=st.sampled_from(MEMORIES),
        avoid=st.sets(st.sampled_from(SHAPES), max_size=2),
    ),
    min_size=1,
    max_size=8,
)


def runs_placed(placement, key):
    return [share[key].runs if key in share else 0 for share in placement.shares]


@given(loads(), SLOTS, st.data())
def test_every_run_is_placed_once_ends_in_time_and_not_where_it_is_avoided(work, slots, data):
    """What a worker trains already may end a little later than the deadline."""
    for i, slot in enumerate(slots):
        j = data.draw(st.integers(-1, len(work) - 1))
        if j >= 0:
            held = data.draw(st.integers(1, work[j].limit[slot.memory]))
            slots[i] = dataclasses.replace(slot, key=work[j].key, runs=held)
            work[j] = work[j]._replace(runs=work[j].runs + held)
    placement = place(work, slots)
    for load in work:
        runs = runs_placed(placement, load.key)
        assert sum(runs) == load.runs
        if not all(load.key in slot.avoid for slot in slots):
            for slot, count in zip(slots, runs, strict=True):
                held = slot.runs if slot.key == load.key else 0
                assert load.key not in slot.avoid or count <= held
    for slot, shares in zip(slots, placement.shares, strict=True):
        seconds = 0.0
        for load in work:
            share = shares.get(load.key)
            limit = load.limit[slot.memory]
            packs = [limit] * (share.runs // limit) + [share.runs % limit] if share else []
            per_epoch = sum(load.cost.seconds(n) for n in packs if n)
            seconds += slot.slowness * load.epochs * per_epoch
        late = STAY if slot.key in shares else 1.0
        assert not shares or seconds <= placement.seconds * late * (1 + 1e-6)


@given(loads(), SLOTS, st.floats(1, 100))
def test_another_worker_never_makes_the_runs_of_a_shape_end_later(work, slots, slowness):
    work = work[:1]
    slots = [dataclasses.replace(slot, avoid=()) for slot in slots]
    more = place(work, [*slots, Slot(slowness)])
    assert more.seconds <= place(work, slots).seconds * PRECISION * (1 + 1e-6)


def one(runs, cost, limit=100, epochs=10, key="a"):
    return Load(key, runs, epochs, cost, {0: limit})


@pytest.mark.parametrize(
    ("cost", "slots", "expected"),
    [
        (Cost(1, 0), [Slot()] * 4, [30, 0, 0, 0]),  # a pack costs as much as a run: one worker
        (Cost(0, 1), [Slot()] * 4, [8, 8, 7, 7]),  # as its runs: all workers
        (Cost(1, 0), [Slot(4.0), Slot()], [0, 30]),
        (Cost(0, 1), [Slot(4.0), Slot(), Slot()], [3, 14, 13]),
        (Cost(0, 1), [Slot(key="a", runs=4), Slot(), Slot(), Slot()], [8, 8, 7, 7]),  # takes more
    ],
)
def test_the_cost_of_a_pack_decides_how_runs_are_divided(cost, slots, expected):
    assert runs_placed(place([one(30, cost)], slots), "a") == expected


def test_a_shape_that_few_workers_may_train_is_placed_first():
    """Else the larger one takes half of the only worker that may train the smaller one."""
    work = [one(4, Cost(0, 1)), one(8, Cost(0, 1), key="b")]
    placement = place(work, [Slot(avoid={"a"}), Slot()])
    assert [runs_placed(placement, key) for key in "ab"] == [[0, 4], [6, 2]]
    assert placement.seconds == pytest.approx(60, rel=0.03)


def test_a_worker_gives_runs_away_only_if_others_are_much_faster_with_them():
    def keeps(slowness):
        holder = Slot(slowness, key="a", runs=4)
        share = place([one(4, Cost(1, 0))], [holder, Slot()]).shares[0]
        return share["a"].keeps if share else 0

    assert keeps(1.0) == keeps(STAY - 0.05) == 4
    assert keeps(STAY + 0.1) == 0


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
    console = Console(as_json=False, quiet=True)
    fleet = Fleet(planner, Packer(planner.points[0].point.corpus, None), [console])
    totals = []
    while not fleet.done:
        drive(fleet, steps=3)
        if fleet.workers:
            fleet.give_back(fleet.gone("w"), interrupted=True)
        totals.append(epochs_left(planner) + epochs_done(planner))
    assert epochs_left(planner) == 0
    assert all(math.isclose(total, totals[-1], rel_tol=0.25) for total in totals)
