"""The workers of a sweep are actors of Ray, which places them; the planner decides.

As many workers are requested as runs could use and the cluster has or can start. One that Ray has
no room for waits, and is the demand that an autoscaler sees. A worker that dies, in whatever way
Ray reports it, is replaced by a new one.
"""

import re
import secrets
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError

from lmzoo.base.stops import STOPS
from lmzoo.base.version import software
from lmzoo.lab.cluster import connection
from lmzoo.lab.cluster.capacity import Capacity
from lmzoo.lab.cluster.head_store import start_server, write_nonce
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.sweep.driver.coordinator import Coordinator
from lmzoo.lab.sweep.driver.mailbox import OtherSweeps, mailbox_name, start_mailbox
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.worker.worker import Worker

LOOK_SECONDS = 0.1
"""Time between two looks at the workers."""
END_SECONDS = 8.0
"""How long the workers may take to end when the sweep has ended."""
LOW_MEMORY = re.compile(r"low on memory(?:.*?IP: (\S+), ID: (\w{6}))?", re.DOTALL)
"""Ray's error about a worker that it has killed, and the node."""


class Workers:
    """The workers that were started and have not ended."""

    def __init__(self, coordinator: Coordinator, start: Callable[[str], Any]) -> None:
        """`start` starts a worker of this name and returns its handle."""
        self._coordinator, self._start = coordinator, start
        self._running: dict[ray.ObjectRef[None], tuple[str, Any]] = {}
        """What `run` of a worker returns -> its name and its handle."""

    def look(self) -> None:
        """Start the workers that are wanted, and report one that has ended."""
        for _ in range(len(self._running), self._coordinator.wanted()):
            name = secrets.token_hex(4)
            handle = self._start(name)
            self._running[handle.run.remote()] = name, handle
        if not self._running:
            time.sleep(LOOK_SECONDS)
            return
        ended, _ = ray.wait([*self._running], timeout=LOOK_SECONDS)
        for result in ended:
            name, handle = self._running.pop(result)
            try:
                ray.get(result)
            except RayError as error:  # it raised, or its process, its node or its answer is lost
                self._coordinator.worker_ended(name, died=True, memory=node_without_memory(error))
                ray.kill(handle)  # a node that does not answer may answer later
            else:
                self._coordinator.worker_ended(name, died=False)
                handle.__ray_terminate__.remote()  # gives its resources back

    def end(self) -> None:
        """Wait for the workers that write their runs, and kill all others."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            in_time = time.monotonic() < deadline and self._coordinator.is_running
            for result, (name, handle) in [*self._running.items()]:
                if not in_time or not self._coordinator.has_asked(name):
                    del self._running[result]
                    ray.kill(handle)
            if not self._running:
                return
            self.look()


def node_without_memory(error: RayError) -> str:
    """Return the node on which Ray has killed a worker for want of memory; "" if it has not."""
    found = LOW_MEMORY.search(str(error))
    if not found:
        return ""
    return f"{found[1]} ({found[2]})" if found[1] else "which is not known"


def actor_options(resources: Resources) -> dict[str, Any]:
    """Return what Ray reserves for each worker, and where."""
    bundle = resources.bundle
    own = {"num_cpus": bundle.pop("CPU"), "num_gpus": bundle.pop("GPU"), "resources": bundle}
    return {**own, **({"label_selector": resources.selector} if resources.selector else {})}


def train(fleet: Fleet, capacity: Capacity) -> bool:
    """Train the pending runs of the fleet's planner; return False if the sweep is interrupted.

    Raises:
        UserError: No node of the cluster can run a worker, or the store cannot be written.
    """
    planner, resources = fleet.planner, capacity.resources
    store, name = planner.store.store, mailbox_name()
    mailbox = start_mailbox(name)
    server = start_server(store) if connection.ADDRESS else None
    others = OtherSweeps(mailbox, name) if connection.ADDRESS else None
    actor, corpus = ray.remote(**actor_options(resources))(Worker), ray.put(fleet.packer.corpus)
    facts: dict[str, Any] = {
        "store": store.address,
        "code": planner.code,
        "threads": max(1, int(resources.cpus)),
        "gpu": resources.gpus or 0.0,
        "nonce": write_nonce(store),
        "curves": planner.store.curves,
        "software": software(),
    }
    with Coordinator(fleet, store, capacity, mailbox, server, others) as coordinator:
        workers = Workers(
            coordinator, lambda name: actor.remote(name, mailbox, corpus, server, **facts)
        )
        with STOPS.deferred():
            while not coordinator.finished:
                workers.look()
            workers.end()
    if coordinator.error:
        raise coordinator.error
    if planner.done:
        planner.write_failures()
    return planner.done
