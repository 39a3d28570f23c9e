"""The workers that a cluster has room for, and those that it may get.

Nothing is fixed at the start: nodes join, are started, are interrupted, or never come. `Growth`
says which nodes may come. Where it does not say, two rules hold:

- A worker that fits on no node that is there or may come is refused. While a node of unknown
  resources may still join, the sweep waits for it without a time limit.
- The device is decided once. If no GPU is there, and the first machine of an SSH cluster has not
  joined (for `JOIN_SECONDS` at most) or no node can run anything, it waits for the first node.
"""

import contextlib
import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lmzoo.base.errors import UserError
from lmzoo.base.printed import counted
from lmzoo.lab.cluster import connection
from lmzoo.lab.cluster.growth import Growth, read_growth
from lmzoo.lab.cluster.resources import Resources

LOOK_SECONDS = 1.0
"""How long a list of the live nodes is used."""
HEAD_SECONDS = 60.0
"""How long the head may take to read the description at the start."""
JOIN_SECONDS = 180.0
"""How long the first machine may take to join before the device is decided without it."""
HELD_SECONDS = 15.0
"""How long resources must be held before it is said; a worker holds its own while it starts."""
OPEN_WORKERS = 64
"""Workers worth asking for, beyond the live ones, where unknown nodes start on demand."""
HEAD = "node:__internal_head__"
"""The resource by which Ray marks the head."""

Node = Mapping[str, float]


class Capacity:
    """The capacity of the cluster that this process is connected to.

    `show` is called with a line if the device cannot be decided yet; `resources` has it decided.
    """

    def __init__(self, resources: Resources, show: Callable[[str], object] = lambda _: None):
        self._lock = threading.Lock()
        self._nodes = dict[str, Node]()
        self._looked = -LOOK_SECONDS
        self.started = 0
        """Workers of the sweep that have started; the coordinator counts them."""
        self._short_since = math.inf
        # A Ray of this machine alone gets no nodes.
        self._growth = Growth(nodes=0)
        if connection.ADDRESS:
            self._growth = Growth(nodes=None)  # unknown, if the head does not say
            with contextlib.suppress(RayError):
                self._growth = ray.get(_read_on_head(self._look()), timeout=HEAD_SECONDS)
        self.resources = self._decide(resources, show)

    def live(self) -> int:
        """Return how many workers fit on the live nodes."""
        return self._capped(sum(self._live()))

    def limit(self) -> int:
        """Return how many workers are worth asking for: others would only wait."""
        workers = sum(self._live()) + sum(self._coming())
        # An autoscaler starts nodes for workers that wait; without one, asking brings no node.
        asked = self._growth.autoscaling or not sum(self._live())
        if self._growth.nodes is None and asked:
            workers += OPEN_WORKERS
        return self._capped(workers)

    def describe(self) -> str:
        """Return what the sweep uses: `8 GPUs on 2 nodes`, `2 CPU cores of this machine`."""
        live = self._live()
        coming = self._coming()
        nodes = counted(sum(map(bool, live + coming)), "node")
        if not connection.ADDRESS:
            text = f"{self._amount(sum(live))} of this machine"
        elif any(coming):
            text = f"up to {self._amount(sum(live + coming))} on {nodes}, {sum(live)} live"
        else:
            text = f"{self._amount(sum(live))} on {nodes}"
        most = self.resources.concurrent
        if most:
            text += f", at most {counted(most, 'worker')}"
        return text

    def waiting(self, wanted: int | None = None) -> str:
        """Return what the sweep waits for: `waiting for 4 GPUs, 1 of 5 nodes is there`.

        `wanted` is the number of workers that the sweep could use; None: all that may come. The
        text is "" if as many are live.
        """
        live = self.live()
        there = len(self._look())
        if wanted is None:
            wanted = max(live, self.limit())
        held = self._held_by_others(min(wanted, live))
        if held:
            return held
        verb = "are there"
        if there == 1:
            verb = "is there"
        if self._growth.nodes is None:
            if live:
                return ""
            return f"waiting for a node with {self.resources}, {counted(there, 'node')} {verb}"
        missing = min(wanted, self.limit()) - live
        nodes = 0
        workers = 0
        for on_node in self._coming():
            if workers < missing:
                nodes += 1
                workers += on_node
        if not nodes:
            return ""
        what = counted(nodes, "machine")
        if self._typical() is not None or not self._has_unknown_nodes():
            what = self._amount(min(workers, missing))
        return f"waiting for {what}, {there} of {there + nodes} nodes {verb}"

    def _held_by_others(self, wanted: int) -> str:
        """Return `waiting for 2 CPU cores that others hold` once this lasts; else ""."""
        missing = wanted - self.started
        if not self._is_short(missing):
            self._short_since = math.inf
            return ""
        # Not at once: a worker holds its own while it starts.
        now = time.monotonic()
        self._short_since = min(self._short_since, now)
        if now - self._short_since < HELD_SECONDS:
            return ""
        return f"waiting for {self._amount(missing)} that others hold"

    def _is_short(self, missing: int) -> bool:
        """Return whether workers are missing, and the cluster has no room for one of them."""
        if not connection.ADDRESS or missing <= 0:
            return False
        # Others may hold what this sweep's workers do not: the capacity counts whole nodes.
        free = ray.available_resources()
        needed = self.resources.bundle
        return any(free.get(name, 0.0) < needed[name] for name in needed)

    def _has_unknown_nodes(self) -> bool:
        """Return whether nodes may join whose resources are not known."""
        return any(not kind.resources for kind in self._growth.types)

    def check(self):
        """Raise a `UserError` if a worker can run on no node that is there or may come."""
        nodes = self._possible()
        if self._growth.nodes is None or _fits(self.resources, nodes):
            return
        # The Ray of this machine has been ended: the end of the sweep says so.
        if not nodes and not connection.ADDRESS:
            return
        # A machine that has not joined yet may be large enough.
        if self._has_unknown_nodes() and self._coming():
            return
        cpus = 0.0
        gpus = 0.0
        for node in nodes:
            cpus = max(cpus, node.get("CPU", 0))
            gpus = max(gpus, node.get("GPU", 0))
        who = "this machine lacks"
        if connection.ADDRESS:
            who = "no node of the cluster has or will have"
        advice = "lower --cpus-per-trial or --gpus-per-trial"
        if self.resources.gpus and not gpus:
            # Fewer GPUs for a worker would not help where there are none.
            advice = "use --device cpu"
        most = f"at most {cpus:g} CPU, {gpus:g} GPU"
        raise UserError(f"a worker needs {self.resources}, but {who} that ({most}); {advice}")

    def node_alive(self, node_id: str) -> bool:
        """Return whether a node was alive at most `LOOK_SECONDS` ago."""
        return node_id in self._look()

    def _decide(self, resources: Resources, show: Callable[[str], object]) -> Resources:
        """Decide the GPUs of a worker; wait for the first node if nothing is known without it."""
        on_gpu = resources.decide(has_gpus=True)
        on_cpu = resources.decide(has_gpus=False)
        start = time.monotonic()
        shown = False
        while True:
            # An option has decided the device, or a GPU is known.
            if on_cpu == on_gpu or _fits(on_gpu, self._possible()):
                return on_gpu
            if not self._may_show_gpus(on_cpu, time.monotonic() - start):
                return on_cpu
            if not shown:
                show("waiting for the first node, whose GPUs decide the device; or use --device")
                shown = True
            time.sleep(LOOK_SECONDS)

    def _may_show_gpus(self, on_cpu: Resources, waited: float) -> bool:
        """Return whether to wait for the first node; a `UserError` where its GPUs are not known."""
        growth = self._growth
        nodes = list(self._look().values())
        idle = not _fits(on_cpu, nodes)
        if growth.nodes is None and growth.autoscaling:
            raise UserError(
                "no GPU is live, and which nodes Kubernetes may start is not known; choose "
                "--device cpu or --device gpu"
            )
        if growth.nodes is None:
            return idle
        # The head itself shows nothing about the GPUs of the others.
        has_joined = not all(HEAD in node for node in nodes)
        if growth.autoscaling or has_joined or not self._has_unknown_nodes():
            return False
        if idle:
            return True
        return waited < JOIN_SECONDS

    def _look(self) -> dict[str, Node]:
        # The console asks from a thread of its own.
        with self._lock:
            if time.monotonic() - self._looked >= LOOK_SECONDS:
                nodes: list[dict[str, Any]] = ray.nodes()
                self._nodes = {node["NodeID"]: node["Resources"] for node in nodes if node["Alive"]}
                self._looked = time.monotonic()
            return self._nodes

    def _workers(self) -> list[Node]:
        """Return the live nodes other than the head."""
        return [node for node in self._look().values() if HEAD not in node]

    def _live(self) -> list[int]:
        return [self.resources.workers_on(node) for node in self._look().values()]

    def _coming(self) -> list[int]:
        """Return how many workers fit on each node that may join the live ones, largest first."""
        live = self._workers()
        live_types = Counter(map(_shape, live))
        workers = list[int]()
        for node_type in self._growth.types:
            count = node_type.count
            shape = _shape(node_type.resources)
            # A node of unknown resources counts as the median live one.
            on_node = max(1, self._typical() or 1)
            if node_type.resources:
                # Those that are live have joined already.
                count -= min(count, live_types[shape])
                live_types[shape] -= node_type.count - count
                on_node = self.resources.workers_on(node_type.resources)
            workers += [on_node] * count
        room = max(0, (self._growth.nodes or 0) - len(live))
        return sorted(workers, reverse=True)[:room]

    def _possible(self) -> list[Node]:
        """Return the live nodes, and the known resources of the types that may start."""
        nodes = list(self._look().values())
        for kind in self._growth.types:
            if kind.count and kind.resources:
                nodes.append(kind.resources)
        return nodes

    def _typical(self) -> int | None:
        """Return how many workers fit on the median live worker node; None if none is live."""
        live = self._workers()
        if not live:
            return None
        return int(statistics.median(map(self.resources.workers_on, live)))

    def _capped(self, workers: int) -> int:
        return min(workers, self.resources.concurrent or workers)

    def _amount(self, workers: int) -> str:
        gpus = self.resources.gpus
        if gpus == 1:
            return counted(workers, "GPU")
        if not gpus and self.resources.cpus == 1:
            return counted(workers, "CPU core")
        return f"{counted(workers, 'worker')} of {self.resources}"


def _fits(resources: Resources, nodes: Sequence[Node]) -> bool:
    """Return whether a worker fits on one of the nodes."""
    return any(map(resources.workers_on, nodes))


def _read_on_head(nodes: Mapping[str, Node]) -> "ray.ObjectRef[Growth]":
    """Read the description on the head, which alone has it: in a task if this is another node."""
    head = ""
    for node, resources in nodes.items():
        if HEAD in resources:
            head = node
    if head == ray.get_runtime_context().get_node_id():
        return ray.put(read_growth())
    # On any other node the file of `ray up` is not there.
    where = NodeAffinitySchedulingStrategy(head, soft=False)
    # It takes no CPU from a worker, and runs where all CPUs are taken.
    return ray.remote(read_growth).options(num_cpus=0, scheduling_strategy=where).remote()


def _shape(node: Node) -> tuple[float, float]:
    return node.get("CPU", 0), node.get("GPU", 0)
