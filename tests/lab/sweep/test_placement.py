"""The placement: all runs are placed, a slow worker costs no time, nothing moves for nothing."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.lab.sweep.fleet.costs import PRECISION, STAY, Cost, Load, Slot, place

MEMORIES = (0, 1)
COSTS = st.builds(Cost, st.floats(0, 5), st.floats(0, 5)).filter(lambda cost: sum(cost) > 0.1)
KEYS = ("a", "b", "c")


@st.composite
def loads(draw):
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
    limit = st.fixed_dictionaries({memory: st.integers(1, 40) for memory in MEMORIES})
    runs, epochs = st.integers(1, 60), st.integers(1, 12)
    return [Load(key, draw(runs), draw(epochs), draw(COSTS), draw(limit)) for key in keys]


SLOTS = st.lists(
    st.builds(
        Slot,
        slowness=st.floats(0.2, 8),
        memory=st.sampled_from(MEMORIES),
        busy=st.floats(0, 20),
        avoid=st.sets(st.sampled_from(KEYS), max_size=2),
    ),
    min_size=1,
    max_size=8,
)


def runs_placed(placement, key):
    return sum(share[key].runs for share in placement.shares if key in share)


@given(loads(), SLOTS, st.data())
def test_every_run_is_placed_once_and_ends_in_time(work, slots, data):
    """What a worker trains already may end a little later than the deadline."""
    for i, slot in enumerate(slots):
        j = data.draw(st.integers(-1, len(work) - 1))
        if j >= 0:
            held = data.draw(st.integers(1, work[j].limit[slot.memory]))
            slots[i] = dataclasses.replace(slot, key=work[j].key, runs=held)
            work[j] = work[j]._replace(runs=work[j].runs + held)
    placement = place(work, slots)
    for load in work:
        assert runs_placed(placement, load.key) == load.runs
    for slot, shares in zip(slots, placement.shares, strict=True):
        seconds = slot.busy
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


@given(loads(), SLOTS)
def test_a_worker_gets_no_more_of_what_it_avoids_unless_all_do(work, slots):
    placement = place(work, slots)
    for load in work:
        if all(load.key in slot.avoid for slot in slots):
            continue
        for slot, shares in zip(slots, placement.shares, strict=True):
            held = slot.runs if slot.key == load.key else 0
            runs = shares[load.key].runs if load.key in shares else 0
            assert load.key not in slot.avoid or runs <= held


def one(runs, cost, limit=100, epochs=10):
    return [Load("a", runs, epochs, cost, {0: limit})]


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
    assert runs_placed(placement := place(one(30, cost), slots), "a") == 30
    assert [share["a"].runs if share else 0 for share in placement.shares] == expected


def test_a_worker_gives_runs_away_only_if_others_are_much_faster_with_them():
    def keeps(slowness):
        holder = Slot(slowness, key="a", runs=4)
        share = place(one(4, Cost(1, 0)), [holder, Slot()]).shares[0]
        return share["a"].keeps if share else 0

    assert keeps(1.0) == keeps(STAY - 0.05) == 4
    assert keeps(STAY + 0.1) == 0
