"""A cluster whose nodes the test sets, without Ray."""

import pytest

from lmzoo.lab.cluster import capacity as capacities
from lmzoo.lab.cluster import connection
from lmzoo.lab.cluster.capacity import HEAD, Capacity
from lmzoo.lab.cluster.growth import Growth
from lmzoo.lab.cluster.resources import Resources


class FakeCluster:
    """The head, first, and the worker nodes of a cluster; `nodes` can change at any time."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, float]] = []
        self.growth = Growth()
        self.now = 0.0
        self.looks = 0
        self.free: dict[str, float] = {"CPU": 1e9, "GPU": 1e9}

    def list_nodes(self) -> list[dict]:
        self.looks += 1
        dead = {"NodeID": "dead", "Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
        marks = [{HEAD: 1.0}] + [{}] * len(self.nodes)
        return [dead] + [
            {"NodeID": f"n{i}", "Alive": True, "Resources": {**node, **marks[i]}}
            for i, node in enumerate(self.nodes)
        ]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def set(self, *nodes: dict[str, float]) -> None:
        """Replace the live nodes, and let the last look expire."""
        self.nodes = list(nodes)
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

    def join_cluster(growth, *nodes, needs=None, show=lambda _: None) -> Capacity:
        fake.growth = growth
        fake.set(*nodes)
        return Capacity(needs or Resources(), show)

    return join_cluster
