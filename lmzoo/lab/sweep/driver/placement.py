"""Who places the workers of a sweep: Ray Core, by default, or Ray Tune (`tune_trials.py`).

The coordinator decides the same with both. It needs a process with a share of a device, and the
calls of `Worker`.
"""

from collections.abc import Callable
from typing import Any

import ray

from lmzoo.base.stops import STOPS
from lmzoo.base.version import software
from lmzoo.lab.cluster import connection
from lmzoo.lab.cluster.capacity import Capacity
from lmzoo.lab.cluster.head_store import start_server, write_nonce
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.sweep.driver.coordinator import Coordinator
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.worker.worker import CALLS, Worker


def actor_options(resources: Resources) -> dict[str, Any]:
    """Return what Ray reserves for each worker."""
    bundle = resources.bundle
    return {"num_cpus": bundle["CPU"], "num_gpus": bundle["GPU"]}


def prepare(fleet: Fleet, capacity: Capacity, place: Callable[[str], object]) -> Coordinator:
    """Return the coordinator of a sweep whose workers `place` lets Ray place."""
    planner = fleet.planner
    resources = capacity.resources
    store = planner.store.store
    # On one machine all workers see the folder of the store.
    server = None
    if connection.ADDRESS:
        server = start_server(store)
    # Read once by each node, not once by each worker.
    corpus = ray.put(fleet.packer.corpus)
    facts: dict[str, Any] = {
        "store": store.address,
        "code": planner.code,
        "threads": max(1, int(resources.cpus)),
        "gpu": resources.gpus or 0.0,
        "nonce": write_nonce(store),
        "curves": planner.store.curves,
        "software": software(),
    }

    def begin(handle: Any) -> Any:
        return handle.start.remote(corpus, server, **facts)

    return Coordinator(fleet, capacity, place, begin, server)


def train(fleet: Fleet, capacity: Capacity) -> bool:
    """Train the pending runs of the fleet's planner; return False if the sweep is interrupted.

    A `UserError` says that no node can run a worker, or that the store cannot be written.
    """
    # An epoch is numbered, so that a call whose answer was lost can be repeated.
    options = {"max_concurrency": CALLS, "max_task_retries": -1}
    actor = ray.remote(**options, **actor_options(capacity.resources))(Worker)
    coordinator = prepare(
        fleet, capacity, lambda name: coordinator.placed(name, actor.remote(name))
    )
    with STOPS.deferred():
        for _ in coordinator.turns():
            pass
    return end(coordinator)


def end(coordinator: Coordinator) -> bool:
    """Raise what has ended a sweep early; return whether it is done."""
    if coordinator.error:
        raise coordinator.error
    planner = coordinator.fleet.planner
    if planner.done:
        planner.write_failures()
    return planner.done
