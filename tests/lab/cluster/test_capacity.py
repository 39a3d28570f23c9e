"""Which workers a cluster has room for now, which may come, and on which device they run."""

import itertools

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster import capacity as capacities
from lmzoo.lab.cluster import connection
from lmzoo.lab.cluster.capacity import HEAD, HELD_SECONDS, OPEN_WORKERS, Capacity
from lmzoo.lab.cluster.growth import Growth, NodeType
from lmzoo.lab.cluster.resources import Resources

GPU_TYPE = {"CPU": 8.0, "GPU": 4.0}
CPU_TYPE = {"CPU": 16.0}
AWS = Growth((NodeType(GPU_TYPE, 4), NodeType(CPU_TYPE, 2)), 5, autoscaling=True)
MACHINES = Growth((NodeType({}, 10),), 10)
ONE_CPU = Resources(device="cpu")


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


@pytest.mark.parametrize(
    ("growth", "nodes", "device", "gpus"),
    [
        (AWS, [{"CPU": 3}], "auto", 1.0),
        (AWS, [{"CPU": 3}], "cpu", 0.0),
        (Growth(), [{"CPU": 3}, GPU_TYPE], "auto", 1.0),
        (Growth(), [{"CPU": 3}, CPU_TYPE], "auto", 0.0),
        (Growth(), [{"CPU": 3}, CPU_TYPE], "gpu", 1.0),
        (Growth((NodeType(GPU_TYPE, 0),), 4, autoscaling=True), [{"CPU": 3}], "auto", 0.0),
    ],
)
def test_workers_use_gpus_where_there_are_or_may_be_some(join, growth, nodes, device, gpus):
    assert join(growth, *nodes, needs=Resources(device=device)).resources.gpus == gpus


@pytest.mark.parametrize(
    ("growth", "nodes", "needs", "live", "limit"),
    [
        # 4 GPU nodes of 4, and the fifth node is one without a GPU
        (AWS, [{"CPU": 3}], Resources(), 0, 16),
        (AWS, [{"CPU": 3}, GPU_TYPE], Resources(), 4, 16),
        (AWS, [{"CPU": 3}, GPU_TYPE], Resources(gpus=0.25), 8, 32),
        (AWS, [{"CPU": 3}], ONE_CPU, 3, 3 + 2 * 16 + 3 * 8),
        # two live CPU nodes leave room for three GPU nodes until they end
        (AWS, [{"CPU": 3}, CPU_TYPE, CPU_TYPE], Resources(), 0, 12),
        # machines are counted one by one, and the missing ones are like the median
        (MACHINES, [{"CPU": 2}] + [{"CPU": 8.0}] * 5, ONE_CPU, 42, 82),
        (MACHINES, [{"CPU": 2}] + [{"CPU": 8.0}] * 4 + [{"CPU": 64.0}], ONE_CPU, 98, 138),
        (MACHINES, [{"CPU": 2}], ONE_CPU, 2, 12),
        (Growth(), [{"CPU": 2}, {"CPU": 2}], ONE_CPU, 4, 4),
        (AWS, [{"CPU": 3}, GPU_TYPE], Resources(concurrent=3), 3, 3),
        # 0.6 of a GPU is never split over two
        (Growth(nodes=1), [{}, {"CPU": 8.0, "GPU": 2.0}], Resources(gpus=0.6), 2, 2),
        (Growth(nodes=1), [{}, {"CPU": 7.0}], Resources(cpus=0.07), 100, 100),
    ],
)
def test_workers_are_counted_node_by_node(join, growth, nodes, needs, live, limit):
    capacity = join(growth, *nodes, needs=needs)
    assert (capacity.live(), capacity.limit()) == (live, limit)


def test_nodes_that_join_and_leave_are_counted_within_a_second(join, fake):
    capacity = join(AWS, {"CPU": 3})
    counts = []
    for number in (0, 1, 4, 2):
        fake.set({"CPU": 3}, *[GPU_TYPE] * number)
        counts.append((capacity.live(), capacity.limit()))
    assert counts == [(0, 16), (4, 16), (16, 16), (8, 16)]
    assert capacity.node_alive("n2")
    assert not capacity.node_alive("n3")
    assert not capacity.node_alive("dead")


@pytest.mark.parametrize(
    ("growth", "nodes", "needs", "text"),
    [
        (AWS, [{"CPU": 3}], Resources(concurrent=2),
         "up to 16 GPUs on 4 nodes, 0 live, at most 2 workers"),
        (Growth(), [{"CPU": 3}, GPU_TYPE, GPU_TYPE], Resources(), "8 GPUs on 2 nodes"),
        (Growth(), [{"CPU": 3}, GPU_TYPE], Resources(gpus=0.5),
         "8 workers of 1 CPU and 0.5 GPU on 1 node"),
        (Growth(nodes=0), [{"CPU": 3}], Resources(), "3 CPU cores on 1 node"),
    ],
)  # fmt: skip
def test_the_first_line_says_what_the_sweep_uses(join, growth, nodes, needs, text):
    assert join(growth, *nodes, needs=needs).describe() == text


def test_one_machine_is_described_without_nodes(join, monkeypatch):
    monkeypatch.setattr(connection, "ADDRESS", "")
    assert join(AWS, {"CPU": 2}).describe() == "2 CPU cores of this machine"
    assert join(AWS, {"CPU": 2, "GPU": 1}).describe() == "1 GPU of this machine"


@pytest.mark.parametrize(
    ("growth", "nodes", "needs", "wanted", "text"),
    [
        (AWS, [{"CPU": 3}], Resources(), None, "waiting for 16 GPUs, 1 of 5 nodes is there"),
        (AWS, [{"CPU": 3}], Resources(), 3, "waiting for 3 GPUs, 1 of 2 nodes is there"),
        (AWS, [{"CPU": 3}, GPU_TYPE], Resources(), 8, "waiting for 4 GPUs, 2 of 3 nodes are there"),
        (AWS, [{"CPU": 3}, GPU_TYPE], Resources(concurrent=4), 99, ""),
        (MACHINES, [{"CPU": 2}], ONE_CPU, None, "waiting for 10 machines, 1 of 11 nodes is there"),
        (MACHINES, [{"CPU": 2}, {"CPU": 4.0}], ONE_CPU, None,
         "waiting for 36 CPU cores, 2 of 11 nodes are there"),
        (Growth(), [{"CPU": 2}], Resources(device="gpu"), 4,
         "waiting for a node with 1 CPU and 1 GPU, 1 node is there"),
        (Growth(), [{"CPU": 2}, GPU_TYPE], Resources(device="gpu"), 9, ""),
    ],
)  # fmt: skip
def test_the_console_says_what_is_missing(join, growth, nodes, needs, wanted, text):
    assert join(growth, *nodes, needs=needs).waiting(wanted) == text


@pytest.mark.parametrize(
    ("growth", "nodes", "needs", "message"),
    [
        (AWS, [{"CPU": 3}], Resources(gpus=8.0),
         r"needs 1 CPU and 8 GPU.*at most 16 CPU, 4 GPU.*lower"),
        (AWS, [{"CPU": 3}], Resources(cpus=17.0, device="cpu"), r"needs 17 CPU.*lower --cpus"),
        (Growth((NodeType(CPU_TYPE, 4),), 4, autoscaling=True), [{"CPU": 3}],
         Resources(device="gpu"), r"no node of the cluster has or will have.*use --device cpu"),
        (MACHINES, [{"CPU": 2}] + [CPU_TYPE] * 10, Resources(device="gpu"), "use --device cpu"),
        (Growth(nodes=0), [{"CPU": 2}], Resources(cpus=3.0), "lower"),
    ],
)  # fmt: skip
def test_a_worker_that_can_never_run_is_refused_at_once(join, growth, nodes, needs, message, fake):
    capacity = join(growth, *nodes, needs=needs)
    before = fake.now
    with pytest.raises(UserError, match=message):
        capacity.check()
    assert fake.now == before


def test_a_worker_that_may_run_is_accepted(join):
    on_gpu = Resources(device="gpu")
    join(AWS, {}).check()
    join(MACHINES, {"CPU": 2}, *[CPU_TYPE] * 9, needs=on_gpu).check()
    join(Growth(), {}, needs=on_gpu).check()
    join(Growth(nodes=0), {"CPU": 2}).check()


def test_the_device_waits_for_the_first_machine_but_not_for_ever(join, fake, monkeypatch):
    lines = []
    arrives = itertools.count(1)

    def sleep(seconds: float) -> None:
        fake.now += seconds
        if next(arrives) == 20:
            fake.nodes.append(GPU_TYPE)

    monkeypatch.setattr("time.sleep", sleep)
    assert join(MACHINES, {"CPU": 2}, show=lines.append).resources.gpus == 1.0
    assert len(lines) == 1

    monkeypatch.setattr("time.sleep", fake.sleep)
    start = fake.now
    assert join(MACHINES, {"CPU": 2}).resources.gpus == 0.0
    assert capacities.JOIN_SECONDS <= fake.now - start < capacities.JOIN_SECONDS + 5
    start = fake.now
    assert join(MACHINES, {"CPU": 2}, needs=Resources(device="gpu")).resources.gpus == 1.0
    assert join(MACHINES, {"CPU": 2}, CPU_TYPE).resources.gpus == 0.0
    assert fake.now - start < 5


def test_an_empty_cluster_that_any_node_may_join_is_waited_for(join, fake, monkeypatch):
    def sleep(seconds: float) -> None:
        fake.now += seconds
        if fake.now > 10_000:
            fake.nodes = [{}, GPU_TYPE]

    monkeypatch.setattr("time.sleep", sleep)
    assert join(Growth(), {}).resources.gpus == 1.0
    assert fake.now > 10_000


def test_no_node_is_awaited_that_only_a_worker_would_start(join, fake):
    unknown_type = Growth((NodeType({}, 4),), 4, autoscaling=True)
    start = fake.now
    assert join(unknown_type, {}).resources.gpus == 0.0
    unreadable = Growth(autoscaling=True)
    with pytest.raises(UserError, match="choose --device cpu or --device gpu"):
        join(unreadable, {})
    assert join(unreadable, {}, needs=Resources(device="gpu")).limit() == OPEN_WORKERS
    assert join(unreadable, {}, GPU_TYPE).resources.gpus == 1.0
    assert join(unreadable, {}, CPU_TYPE, needs=ONE_CPU).resources.gpus == 0.0
    assert fake.now - start < 10


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gpus": 1.5}, r"--gpus-per-trial 1\.5"),
        ({"device": "tpu"}, "--device 'tpu' is unknown"),
        ({"device": "cpu", "gpus": 1.0}, "--device cpu contradicts --gpus-per-trial 1"),
        ({"device": "gpu", "gpus": 0.0}, "--device gpu contradicts --gpus-per-trial 0"),
    ],
)
def test_resources_that_contradict_each_other_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        Resources(**fields)


@pytest.mark.parametrize(
    ("free", "started", "text"),
    [
        ({}, 0, "waiting for 2 CPU cores that others hold"),
        ({"CPU": 0.5}, 1, "waiting for 1 CPU core that others hold"),
        ({"CPU": 0.5}, 2, ""),
        ({"CPU": 1.0}, 0, ""),
    ],
)
def test_resources_that_others_hold_are_said_when_it_lasts(join, fake, free, started, text):
    capacity = join(Growth(nodes=0), {"CPU": 2}, needs=ONE_CPU)
    fake.free, capacity.started = free, started
    assert capacity.waiting() == ""
    fake.now += HELD_SECONDS
    assert capacity.waiting() == text
    fake.free = {"CPU": 2.0}
    assert capacity.waiting() == ""
