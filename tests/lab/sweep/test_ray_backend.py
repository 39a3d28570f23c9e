"""Workers are started as they are wanted, and each of their ends is reported once."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ray import exceptions

from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.sweep.driver import ray_backend
from lmzoo.lab.sweep.driver.ray_backend import Workers, actor_options

LOW = "1 worker(s) were killed due to the node running low on memory.\nMemory on the node (IP: {}, "


class Sweep:
    """A coordinator, and a Ray whose workers end when the test says so."""

    def __init__(self, monkeypatch) -> None:
        self.number, self.started, self.asked, self.ended = 2, [], set(), []
        self.results, self.killed, self.is_running = {}, [], True
        self.workers = Workers(self, self.start)
        fake = {"wait": self.wait, "get": self.get, "kill": self.killed.append}
        monkeypatch.setattr(ray_backend, "ray", SimpleNamespace(**fake))

    def wanted(self) -> int:
        return self.number

    def has_asked(self, name) -> bool:
        return name in self.asked

    def worker_ended(self, name, *, died, memory="") -> None:
        self.ended.append((name, died, memory))

    def start(self, name):
        self.started.append(name)
        handle = Mock()
        handle.run.remote = lambda: name
        handle.__ray_terminate__ = Mock()
        return handle

    def wait(self, running, timeout):
        return [name for name in running if name in self.results][:1], []

    def get(self, name):
        if isinstance(self.results[name], Exception):
            raise self.results[name]


@pytest.fixture
def sweep(monkeypatch):
    return Sweep(monkeypatch)


@pytest.mark.parametrize(
    "kind",
    ["ActorDiedError", "ActorUnavailableError", "NodeDiedError", "ObjectLostError",
     "OutOfDiskError", "OutOfMemoryError", "RayTaskError", "WorkerCrashedError"],
)  # fmt: skip
def test_every_end_of_a_worker_that_ray_reports_is_a_death_and_is_replaced(sweep, kind):
    sweep.workers.look()
    first, second = sweep.started
    error = getattr(exceptions, kind)
    sweep.results[first] = type(
        kind, (error,), {"__init__": lambda _: None, "__str__": lambda _: "gone"}
    )()
    sweep.results[second] = None
    for _ in range(3):
        sweep.workers.look()
    assert sweep.ended == [(first, True, ""), (second, False, "")]
    assert len(sweep.started) == 4
    assert len(sweep.killed) == 1


@pytest.mark.parametrize(
    ("text", "node"),
    [
        (LOW.format("10.0.0.1") + "ID: abcdef012) was 9GB used", "10.0.0.1 (abcdef)"),
        ("killed due to the node running low on memory", "which is not known"),
        ("The actor died", ""),
    ],
)
def test_a_worker_that_ray_killed_for_memory_names_its_node(sweep, text, node):
    sweep.workers.look()
    sweep.results[sweep.started[0]] = exceptions.OutOfMemoryError(text)
    sweep.workers.look()
    assert sweep.ended == [(sweep.started[0], True, node)]


@pytest.mark.parametrize("answers", [True, False])
def test_at_the_end_workers_may_write_and_those_that_have_nothing_are_killed(sweep, answers):
    sweep.workers.look()
    works = sweep.started[0]
    sweep.number, sweep.is_running, sweep.asked = 0, answers, {works}
    sweep.results[works] = None
    sweep.workers.end()
    assert sweep.ended == ([(works, False, "")] if answers else [])
    assert len(sweep.killed) == (1 if answers else 2), "nobody would answer them"


def test_an_actor_gets_the_resources_of_a_worker():
    own = Resources(cpus=2.0, gpus=0.5, accelerator="A100", without=("T4",))
    assert actor_options(own) == {
        "num_cpus": 2.0,
        "num_gpus": 0.5,
        "resources": {"accelerator_type:A100": 0.001},
        "label_selector": own.selector,
    }
