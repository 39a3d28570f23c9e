"""A coordinator with a mailbox, a cluster and a clock that the test controls, without Ray."""

import pickle
import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.sweep.driver import coordinator as module
from lmzoo.lab.sweep.driver.coordinator import RECOVERY, Coordinator
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Exchange, Hello
from lmzoo.lab.sweep.worker.worker import HEARTBEAT_SECONDS


class Sweep:
    """Each turn of the coordinator's loop delivers some messages."""

    def __init__(self, planner, corpus) -> None:
        self.now, self.live, self.alive, self.killed = 0.0, 1, {"node"}, []
        self.beats: Counter[str] = Counter()
        self.revoked: dict[str, list[str]] = {}
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
        mailbox = SimpleNamespace(fetch=SimpleNamespace(remote=self._fetch))
        self.coordinator = Coordinator(self.fleet, planner.store.store, capacity, mailbox)

    def turn(self, *messages, after: float = 0.0) -> dict:
        """Deliver messages after these seconds; return the replies."""
        self.now += after
        self._messages, self._replies = [[*messages], []], {}
        self.coordinator._stopped.clear()
        self.coordinator._run()
        return self._replies

    def _check(self):
        if self.refusal:
            raise self.refusal

    def _fetch(self, replies, revoked, seconds):
        self.revoked |= revoked
        self._replies |= {worker: reply for worker, (_, reply) in replies.items()}
        messages = self._messages.pop(0)
        if not self._messages:
            self.coordinator._stopped.set()
        return messages, dict(self.beats)

    def exchange(self, worker, reports=()):
        """Let a worker exchange; return its reply, "none" if there is none yet."""
        replies = self.turn(exchange(worker, self.opened(worker), reports))
        return replies.get(worker, "none")

    def opened(self, worker) -> list[str]:
        state = self.fleet.workers.get(worker)
        return [*state.training, *state.leaving] if state else []

    def train_all(self, worker) -> None:
        """Report the last epoch of all runs of a worker."""
        runs = self.fleet.workers[worker].training.values()
        self.exchange(worker, [(run.id, epoch(run.budget)) for run in runs])

    def start(self, worker) -> None:
        """Let a worker start on the node `node`."""
        self.turn(Hello(worker, pickle.dumps(worker), "node", "host"))


def exchange(worker, opened=(), reports=(), confirmed=()):
    return Exchange(worker, 1, opened, reports, confirmed)


def epoch(number):
    return {"epoch": number, "valid_token": 3.0}


@pytest.fixture
def sweep(planner, corpus, monkeypatch):
    result = Sweep(planner, corpus)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: result.now))
    monkeypatch.setattr(module.ray, "get", lambda value: value)
    monkeypatch.setattr(module.ray, "kill", result.killed.append)
    result.coordinator._next_check, result.coordinator._counted = HEARTBEAT_SECONDS, 0.0
    yield result
    recovered(result)


def recovered(sweep) -> None:
    """Wait until the runs of dead workers are returned."""
    for thread in threading.enumerate():
        if thread.name == RECOVERY:
            thread.join()
