"""Sweeps on one cluster share it."""

# ruff: noqa: F811  fixtures are imported, and then requested by name
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from lmzoo.lab.sweep.driver.coordinator import LOOK_SECONDS
from lmzoo.lab.sweep.driver.other_sweeps import Demand, OtherSweeps, fair_shares
from tests.lab.sweep.manual_coordinator import sweep  # noqa: F401

WANTED = st.lists(st.integers(0, 40), min_size=1, max_size=8)


@given(WANTED, st.integers(1, 30))
def test_no_sweep_gets_less_than_an_equal_part_and_no_worker_is_left(wanted, room):
    shares = fair_shares([Demand("cpu", number, 0, room) for number in wanted])
    sweeps = sum(number > 0 for number in wanted)
    for share, number in zip(shares, wanted, strict=True):
        assert min(number, max(1, room // max(1, sweeps))) <= share <= number
    assert sum(shares) == max(sweeps, min(room, sum(wanted)))


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=6))
def test_workers_of_other_sizes_fit_together(demands):
    demands = [Demand("cpu", wanted, 0, room) for wanted, room in demands]
    shares = fair_shares(demands)
    parts = [share / demand.room for share, demand in zip(shares, demands, strict=True)]
    beyond = [part for share, part in zip(shares, parts, strict=True) if share > 1]
    assert all(shares)
    assert sum(parts) <= 1 + 1e-6 or not beyond


def other(sweep, *demands: Demand, place: int = 0) -> None:
    """Let other sweeps want this from now on; `place` is that of this sweep among them."""

    def look(own: Demand) -> tuple[list[Demand], int]:
        return [*demands[:place], own, *demands[place:]], place

    sweep.coordinator._others = SimpleNamespace(look=look)
    sweep.turn(after=LOOK_SECONDS)


def test_a_sweep_lets_workers_go_only_when_another_one_waits(sweep):
    sweep.live = 2
    packs = {name: sweep.exchange(name).members for name in "ab"}
    alone = sweep.coordinator.wanted()
    assert alone > 2
    for has in (Demand("cpu", 0, 0, 2), Demand("cpu", 1, 1, 2)):
        other(sweep, has, place=1)
        assert not sweep.fleet.dismissed, "it has what it wants"
    other(sweep)
    assert sweep.coordinator.wanted() == alone
    other(sweep, Demand("cpu", 2, 0, 2))
    assert sweep.coordinator.wanted() == 1
    (name,) = sweep.fleet.dismissed
    (stays,) = {*"ab"} - {name}
    reply = sweep.exchange(name)
    assert (reply.members, {*reply.release}) == ([], {*packs[name]})
    for run in reply.release:
        sweep.fleet.released(name, run)
    assert sweep.exchange(name) is None, "it ends at once"
    assert {*sweep.exchange(stays).members} == {*packs["a"], *packs["b"]}
    sweep.turn(after=LOOK_SECONDS)
    assert not sweep.fleet.dismissed


def test_the_demands_of_sweeps_that_have_ended_are_forgotten(monkeypatch):
    demand, own = Demand("gpu", 4, 2, 8), Demand("gpu", 9, 8, 8)
    cpu = Demand("cpu", 1, 1, 1)
    demands = {"sweep-1": demand, "sweep-3": own, "sweep-4": cpu, "other": None}

    def call(value):
        return SimpleNamespace(remote=lambda *_: value)

    boxes = {n: SimpleNamespace(demand=call(d), announce=call(0)) for n, d in demands.items()}
    names = lambda all_namespaces: [{"name": name, "namespace": "lmzoo"} for name in boxes]  # noqa: E731
    fake = SimpleNamespace(
        util=SimpleNamespace(list_named_actors=names),
        get_actor=lambda name, namespace: boxes[name],
        get=lambda answer, timeout: answer,
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "0" * 56),
        remote=lambda _: SimpleNamespace(options=lambda **_: call(boxes["sweep-3"])),
    )
    monkeypatch.setattr("lmzoo.lab.sweep.driver.other_sweeps.ray", fake)
    sweeps = OtherSweeps()
    sweeps._name = "sweep-3"
    assert sweeps.look(own) == ([demand, own], 1)
    del boxes["sweep-1"]
    assert sweeps.look(own) == ([own], 0)
