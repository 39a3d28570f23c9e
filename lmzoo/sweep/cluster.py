"""Starts or joins a Ray cluster, and checks that it can run the workers.

A worker that fits on no live node may fit on a node that the autoscaler can start. Then the sweep
continues, and Ray starts the node. If the resources of a node are not known before it joins
(machines reached by SSH), the sweep waits for it for `JOIN_SECONDS`. Otherwise it ends at once.
"""

import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmzoo.sweep.address import CLUSTER_CONFIG, RAY_ALREADY_IMPORTED, ray_environment

os.environ.update(ray_environment(os.environ))

import ray
import yaml

from lmzoo.errors import UserError
from lmzoo.sweep.runtime_env import runtime_env

_RAY_ADDRESS = os.environ.get("RAY_ADDRESS", "")
ADDRESS = "" if _RAY_ADDRESS == "local" else _RAY_ADDRESS
"""Address of the cluster to join; "" starts Ray on this machine."""
START_ATTEMPTS = 5
"""How often starting Ray is attempted."""
LOG = logging.getLogger("lmzoo.sweep")
JOIN_SECONDS = 180.0
"""How long a machine may take to join the cluster."""


@dataclass(frozen=True)
class Resources:
    """The CPUs and GPUs of each worker, and the maximum number of workers (0: as many as fit)."""

    cpus: float = 1.0
    gpus: float = 0.0
    concurrent: int = 0

    def __post_init__(self) -> None:
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise UserError(
                f"--gpus-per-trial {self.gpus:g} is neither a share of one GPU nor a whole number"
            )

    def __str__(self) -> str:
        return f"{self.cpus:g} CPU" + (f" and {self.gpus:g} GPU" if self.gpus else "")

    def workers_on(self, node: Mapping[str, float]) -> int:
        """Return how many workers fit on a node; `node` maps CPU and GPU to their numbers."""
        workers = int(node.get("CPU", 0) / self.cpus)
        return min(workers, int(node.get("GPU", 0) / self.gpus)) if self.gpus else workers


@contextlib.contextmanager
def cluster(meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Join the cluster at `ADDRESS`, or start Ray on loopback; disconnect from it at the end.

    `meanwhile` is called while Ray starts, which takes seconds.

    Raises:
        UserError: Ray was imported too early, or the cluster does not respond.
    """
    for name in ("ray", "ray.tune"):
        logging.getLogger(name).setLevel(logging.ERROR)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    previous_handler = _handle_sigterm_as_sigint()
    # The executor stays open: Ray's processes end when the thread that started them ends.
    with ThreadPoolExecutor(1) as executor:
        connected = executor.submit(_join if ADDRESS else _start, quiet)
        try:
            meanwhile()
            connected.result()
            _handle_sigterm_as_sigint()  # Ray has installed a handler of its own
            with contextlib.redirect_stdout(sys.stderr):  # Ray reports dead processes on stdout
                yield
        finally:
            connected.exception()
            signal.signal(signal.SIGTERM, previous_handler)
            ray.shutdown()


def _handle_sigterm_as_sigint() -> Any:
    """Make SIGTERM interrupt this process as Ctrl-C does; return the previous handler."""
    return signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))


def _start(quiet: Mapping[str, Any]) -> None:
    """Start Ray; on a busy machine its processes may time out, so it is attempted several times.

    Raises:
        UserError: This process imported Ray before the token was set.
    """
    if RAY_ALREADY_IMPORTED:  # Ray's processes would reject this one, and it would wait forever
        raise UserError(
            "ray was imported before lmzoo.sweep, which sets Ray's access token; "
            "remove `import ray` from the study, or put it inside a function"
        )
    for attempts_left in reversed(range(START_ATTEMPTS)):
        try:
            ray.init(address="local", include_dashboard=False, **quiet)
        except Exception as error:  # Ray raises plain exceptions
            if not attempts_left:
                raise
            LOG.warning("Ray did not start (%s); trying again", str(error).partition(".")[0])
        else:
            return


def check_resources(resources: Resources) -> None:
    """Return once a worker fits on a live node, or on a node that the autoscaler can start.

    Raises:
        UserError: No node of the cluster can run a worker.
    """
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        live = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        startable = _startable_nodes(len(live))
        known = live + [node for node in startable if node]
        if any(resources.workers_on(node) for node in known):
            return
        if all(startable) or time.monotonic() >= deadline:
            break
        time.sleep(1)
    largest = Resources(*(max((n.get(k, 0) for n in known), default=0) for k in ("CPU", "GPU")))
    raise UserError(
        f"a worker needs {resources}, but no node of the cluster has or will have that (at most "
        f"{largest.cpus:g} CPU, {largest.gpus:g} GPU); lower --cpus-per-trial or --gpus-per-trial"
    )


def count_live_workers(resources: Resources) -> int:
    """Return the maximum number of concurrent workers on the live nodes."""
    workers = sum(resources.workers_on(node["Resources"]) for node in ray.nodes() if node["Alive"])
    return min(workers, resources.concurrent or workers)


def count_max_workers(resources: Resources) -> int:
    """Return the maximum number of concurrent workers once all startable nodes are live."""
    live = [resources.workers_on(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    startable = [
        resources.workers_on(node) if node else max(live) for node in _startable_nodes(len(live))
    ]
    return resources.concurrent or max(1, sum(live), sum(startable))


def _join(quiet: Mapping[str, Any]) -> None:
    host, colon, port = ADDRESS.rpartition(":")
    try:
        if colon and port.isdecimal() and "/" not in host:  # Ray itself would try for a minute
            socket.create_connection((host, int(port)), timeout=5).close()
        # A submitted job has its source already.
        source = {} if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ else runtime_env()
        ray.init(address="auto", runtime_env=source, **quiet)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"no Ray cluster responds at {ADDRESS} ({' '.join(str(error).split())[:200]}); start "
            "it with `ray up`, or set RAY_ADDRESS=local to use this machine only"
        ) from None


def _startable_nodes(live: int) -> list[dict[str, float]]:
    """Return the resources of each node that the autoscaler may start; {} if they are unknown.

    `live` is the number of live nodes. Nodes of a cloud provider are listed even if they are live.
    """
    path = Path(CLUSTER_CONFIG).expanduser()
    if not ADDRESS or not path.exists():
        return []
    config = yaml.safe_load(path.read_text())
    if config["provider"]["type"] == "local":
        return [{}] * (1 + len(config["provider"].get("worker_ips", [])) - live)
    max_workers = config.get("max_workers", 0)
    return [
        dict(node_type.get("resources") or {})
        for node_type in config["available_node_types"].values()
        for _ in range(min(node_type.get("max_workers", max_workers), max_workers))
    ]
