"""A coordinator with workers, a cluster and a clock that the test controls, without Ray."""

import threading
from types import SimpleNamespace

import pytest
from ray.exceptions import RayError

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.sweep.driver import coordinator as module
from lmzoo.lab.sweep.driver.coordinator import RECOVERY, Actor, Coordinator
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Exchange, Failed, Started
from lmzoo.lab.sweep.worker.worker import HEARTBEAT_SECONDS


class Call:
    """What a call of a worker returns; it has a `value` when the test gives it one."""


class Handle:
    """The handle of a worker; it keeps what the worker gets."""

    def __init__(self, name: str, sweep: "Sweep") -> None:
        def method(answer):
            def remote(*given):
                answer(*given)
                return Call()

            return SimpleNamespace(remote=remote)

        self.name = name
        self.work = method(lambda _, assignment: sweep.replies.update({name: assignment}))
        self.close = method(lambda: sweep.replies.update({name: None}))
        self.news = method(lambda _: None)
        self.start = method(lambda: None)
        terminate = SimpleNamespace(remote=lambda: sweep.terminated.append(name))
        self.__dict__["__ray_terminate__"] = SimpleNamespace(options=lambda **_: terminate)


class Sweep:
    """Each turn of the coordinator takes what the test lets the workers send."""

    def __init__(self, planner, corpus) -> None:
        self.now = 0.0
        self.live = 1
        self.alive = {"node"}
        self.killed = []
        self.replies = {}
        self.terminated = []
        self.refusal: UserError | None = None
        self.fleet = Fleet(planner, Packer(corpus, None))
        capacity = SimpleNamespace(
            live=lambda: self.live,
            room=lambda: self.live,
            limit=lambda: 8,
            node_alive=lambda node: node in self.alive,
            check=self._check,
            resources=Resources(),
        )
        self.coordinator = Coordinator(self.fleet, capacity, self._place, lambda _: Call())

    def turn(self, after: float = 0.0, *, starts: bool = False) -> dict:
        """Let these seconds pass; return what the workers get, None if they are to end."""
        self.now += after
        if not starts:
            # Then it asks for no further workers.
            self.coordinator.__dict__["wanted"] = lambda: 0
        self.coordinator.turn()
        self.coordinator.__dict__.pop("wanted", None)
        replies = self.replies
        self.replies = {}
        return replies

    def start(self, worker, node="node", host="host", failed="") -> None:
        """Let a worker start; it has not reported yet."""
        actor = Actor(worker, Handle(worker, self), Call(), Call())
        self.coordinator.actors[worker] = actor
        self.say(worker, Started(node, host))
        self.turn()
        if failed:
            actor.call.value = Failed(failed)
        else:
            actor.call.value = Exchange(worker)

    def say(self, worker, *news) -> None:
        self.coordinator.actors[worker].news.value = news

    def exchange(self, worker, reports=(), news=0):
        """Let a worker report; return what it gets, "none" if there is nothing yet."""
        if worker not in self.coordinator.actors:
            self.start(worker)
        actor = self.coordinator.actors[worker]
        if reports and actor.call is None:
            actor.call = Call()
        if actor.call and not hasattr(actor.call, "value"):
            actor.call.value = Exchange(worker, self.opened(worker), reports, 0, news)
        return self.turn().get(worker, "none")

    def opened(self, worker) -> list[str]:
        if worker not in self.fleet.workers:
            return []
        state = self.fleet.workers[worker]
        return list(state.training) + list(state.leaving)

    def train_all(self, worker) -> None:
        """Report the last epoch of all runs of a worker."""
        runs = self.fleet.workers[worker].training.values()
        self.exchange(worker, [(run.id, epoch(run.budget)) for run in runs])

    def dies(self, worker, error: Exception | None = None) -> None:
        self.coordinator.actors[worker].news.value = error or RayError("the actor died")
        self.replies = self.turn()
        recovered()

    def get(self, call):
        if isinstance(call.value, Exception):
            raise call.value
        return call.value

    def kill(self, handle: Handle) -> None:
        self.killed.append(handle.name)

    def wait(self, calls, timeout, num_returns=1):
        return [call for call in calls if hasattr(call, "value")], []

    def _place(self, name):
        self.coordinator.placed(name, Handle(name, self))

    def _check(self):
        if self.refusal:
            raise self.refusal


def epoch(number):
    return {"epoch": number, "valid_token": 3.0}


@pytest.fixture
def sweep(planner, corpus, monkeypatch):
    result = Sweep(planner, corpus)
    clock = SimpleNamespace(monotonic=lambda: result.now, sleep=lambda seconds: None)
    monkeypatch.setattr(module, "time", clock)
    fake = SimpleNamespace(get=result.get, wait=result.wait, kill=result.kill)
    monkeypatch.setattr(module, "ray", fake)
    result.coordinator._next_check = HEARTBEAT_SECONDS
    result.coordinator._counted = 0.0
    yield result
    recovered()


def recovered() -> None:
    """Wait until the locks of dead workers are free."""
    for thread in threading.enumerate():
        if thread.name == RECOVERY:
            thread.join()
