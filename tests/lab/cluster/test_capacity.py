"""Which workers a cluster has room for now, which may come, and on which device they run."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster import capacity as capacities
from lmzoo.lab.cluster import connection
from lmzoo.lab.cluster.capacity import HEAD, HELD_SECONDS, OPEN_WORKERS, Capacity
from lmzoo.lab.cluster.growth import Growth, NodeType
from lmzoo.lab.cluster.resources import Resources
from tests.cases import cases, rows

GPU_NODE = {"CPU": 8.0, "GPU": 4.0}
CPU_NODE = {"CPU": 16.0}
NODES = {"GPU node": GPU_NODE, "CPU node": CPU_NODE}
TABLES = "lab/cluster/cases.toml"


def named_node(node: Any) -> dict[str, float]:
    if isinstance(node, str):
        return NODES[node]
    return node


def growth_of(types: Any = (), **fields: Any) -> Growth:
    """Return how a cluster may grow; each type is a node and how many there may be."""
    kinds = [NodeType(named_node(node), most) for node, most in types]
    return Growth(tuple(kinds), **fields)


GROWTHS = rows(TABLES, "growths")


class FakeCluster:
    """The head, first, and the worker nodes of a cluster; `nodes` can change at any time."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, float]] = []
        self.growth = Growth()
        self.now = 0.0
        self.free: dict[str, float] = {"CPU": 1e9, "GPU": 1e9}
        self.slept: Callable[[], object] = lambda: None
        """Called after each pause of the sweep."""

    def list_nodes(self) -> list[dict]:
        # Ray lists nodes that have left, too.
        dead = {"NodeID": "dead", "Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
        found = [dead]
        for number, node in enumerate(self.nodes):
            found.append({"NodeID": f"n{number}", "Alive": True, "Resources": node.copy()})
        # Ray marks its head so.
        found[1]["Resources"][HEAD] = 1.0
        return found

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept()

    def set(self, *nodes: Any) -> None:
        """Replace the live nodes, and let the last look expire."""
        self.nodes = [named_node(node) for node in nodes]
        self.now += capacities.LOOK_SECONDS


@pytest.fixture
def fake(monkeypatch):
    fake = FakeCluster()
    monkeypatch.setattr(connection, "ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr("ray.nodes", fake.list_nodes)
    monkeypatch.setattr("ray.available_resources", lambda: fake.free)
    monkeypatch.setattr("ray.get", lambda answer, timeout=None: answer)
    monkeypatch.setattr(capacities, "_read_on_head", lambda nodes: fake.growth)
    monkeypatch.setattr("time.monotonic", lambda: fake.now)
    monkeypatch.setattr("time.sleep", fake.sleep)
    return fake


@pytest.fixture
def join(fake):
    """Joins a cluster with this growth and these live nodes, the head first."""

    def join_cluster(growth, *nodes, show=lambda _: None, **needs) -> Capacity:
        fake.growth = growth_of(**GROWTHS[growth])
        fake.set(*nodes)
        return Capacity(Resources(**needs), show)

    return join_cluster


@cases(TABLES, "devices", "growth, nodes, device, gpus")
def test_workers_use_gpus_where_there_are_or_may_be_some(join, growth, nodes, device, gpus):
    capacity = join(growth, *nodes, device=device)
    assert capacity.resources.gpus == gpus


@cases(TABLES, "counted", "growth, nodes, needs, live, limit")
def test_workers_are_counted_node_by_node(join, growth, nodes, needs, live, limit):
    capacity = join(growth, *nodes, **needs)
    assert capacity.live() == live
    assert capacity.limit() == limit


@pytest.mark.parametrize(("nodes", "live"), [(0, 0), (1, 4), (4, 16), (2, 8)])
def test_nodes_that_join_and_leave_are_counted_within_a_second(join, fake, nodes, live):
    head = {"CPU": 3}
    capacity = join("aws", head, "GPU node")
    fake.set(head, *[GPU_NODE] * nodes)
    # A worker for each of four GPUs.
    assert capacity.live() == live
    assert capacity.limit() == 16


def test_a_node_that_is_listed_as_dead_is_not_alive(join):
    capacity = join("aws", {"CPU": 3}, "GPU node")
    assert capacity.node_alive("n1")
    assert not capacity.node_alive("n2")
    assert not capacity.node_alive("dead")


@cases(TABLES, "described", "growth, nodes, needs, text")
def test_the_first_line_says_what_the_sweep_uses(join, growth, nodes, needs, text):
    capacity = join(growth, *nodes, **needs)
    assert capacity.describe() == text


MACHINES = [
    ({"CPU": 2}, "2 CPU cores of this machine"),
    ({"CPU": 2, "GPU": 1}, "1 GPU of this machine"),
]


@pytest.mark.parametrize(("node", "text"), MACHINES)
def test_one_machine_is_described_without_nodes(join, monkeypatch, node, text):
    # The sweep's own Ray has no address.
    monkeypatch.setattr(connection, "ADDRESS", "")
    assert join("aws", node).describe() == text


@cases(TABLES, "waiting", "growth, nodes, needs, wanted, text")
def test_the_console_says_what_is_missing(join, growth, nodes, needs, wanted, text):
    capacity = join(growth, *nodes, **needs)
    # TOML has no null.
    assert capacity.waiting(wanted or None) == text


@cases(TABLES, "impossible", "growth, nodes, needs, message")
def test_a_worker_that_can_never_run_is_refused_at_once(join, growth, nodes, needs, message, fake):
    capacity = join(growth, *nodes, **needs)
    before = fake.now
    with pytest.raises(UserError, match=message):
        capacity.check()
    assert fake.now == before


@cases(TABLES, "possible", "growth, nodes, needs")
def test_a_worker_that_may_run_is_accepted(join, growth, nodes, needs):
    capacity = join(growth, *nodes, **needs)
    capacity.check()


def test_a_ray_that_has_ended_is_no_machine_without_a_processor(join, fake, monkeypatch):
    monkeypatch.setattr(connection, "ADDRESS", "")
    capacity = join("one node", CPU_NODE)
    # A Ray that has ended lists no nodes.
    monkeypatch.setattr("ray.nodes", list)
    fake.now += 10
    capacity.check()


def test_the_device_waits_for_the_first_machine(join, fake):
    lines = []
    pauses = itertools.count(1)

    def arrive():
        if next(pauses) == 20:
            fake.nodes.append(GPU_NODE)

    fake.slept = arrive
    capacity = join("machines", {"CPU": 2}, show=lines.append)
    assert capacity.resources.gpus == 1.0
    # It says once that it waits.
    assert len(lines) == 1


def test_the_device_does_not_wait_for_ever(join, fake):
    assert join("machines", {"CPU": 2}).resources.gpus == 0.0
    assert capacities.JOIN_SECONDS <= fake.now < capacities.JOIN_SECONDS + 6


KNOWN = [([], "gpu", 1.0), (["CPU node"], "auto", 0.0)]


@pytest.mark.parametrize(("nodes", "device", "gpus"), KNOWN)
def test_a_known_device_does_not_wait(join, fake, nodes, device, gpus):
    capacity = join("machines", {"CPU": 2}, *nodes, device=device)
    assert capacity.resources.gpus == gpus
    assert fake.now < 5


def test_an_empty_cluster_that_any_node_may_join_is_waited_for(join, fake):
    def arrive():
        if fake.now > 10_000:
            fake.nodes = [{}, GPU_NODE]

    fake.slept = arrive
    assert join("any node", {}).resources.gpus == 1.0
    assert fake.now > 10_000


def test_no_node_is_awaited_that_only_a_worker_would_start(join, fake):
    assert join("unknown nodes", {}).resources.gpus == 0.0
    assert fake.now < 5


def test_without_a_readable_growth_the_user_chooses_the_device(join, fake):
    with pytest.raises(UserError, match="choose --device cpu or --device gpu"):
        join("unreadable", {})
    capacity = join("unreadable", {}, device="gpu")
    assert capacity.limit() == OPEN_WORKERS
    assert fake.now < 5


LIVE = [("GPU node", "auto", 1.0), ("CPU node", "cpu", 0.0)]


@pytest.mark.parametrize(("node", "device", "gpus"), LIVE)
def test_without_a_readable_growth_a_live_node_decides_the_device(join, node, device, gpus):
    capacity = join("unreadable", {}, node, device=device)
    assert capacity.resources.gpus == gpus


@cases(TABLES, "contradictory", "fields, message")
def test_resources_that_contradict_each_other_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        Resources(**fields)


@cases(TABLES, "held", "free, started, text")
def test_resources_that_others_hold_are_said_when_it_lasts(join, fake, free, started, text):
    capacity = join("no node", {"CPU": 2}, device="cpu")
    fake.free = free
    capacity.started = started
    assert capacity.waiting() == ""
    fake.now += HELD_SECONDS
    assert capacity.waiting() == text
    fake.free = {"CPU": 2.0}
    assert capacity.waiting() == ""
