"""The running cluster or one of our own; and whether it can ever hold a trial.

A trial that fits no live node may still fit one that the autoscaler can start: then the
sweep goes on, and Ray starts it. Where a node's resources are not known before it is
there (machines reached by SSH), the sweep waits a while for it. Otherwise it ends at once
with what was asked and what there is.
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

from lmzoo.sweep.address import DESCRIPTION, TOO_LATE, environment

os.environ.update(environment(os.environ))

import ray
import yaml

from lmzoo.errors import UserError
from lmzoo.sweep.runtime_env import runtime_env

_NAMED = os.environ.get("RAY_ADDRESS", "")
ADDRESS = "" if _NAMED == "local" else _NAMED
"""The cluster to join; '' is one of our own."""
STARTS = 5
"""How often starting Ray is tried."""
LOG = logging.getLogger("lmzoo.sweep")
JOIN = 180.0
"""Seconds that a machine of the cluster may take to join it."""


@dataclass(frozen=True)
class Resources:
    """What each trial gets, and how many run at a time (0: as many as fit)."""

    cpus: float = 1.0
    gpus: float = 0.0
    concurrent: int = 0

    def __post_init__(self) -> None:
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise UserError(
                f"--gpus-per-trial {self.gpus:g}: a share of one GPU, as 0.25, or whole GPUs"
            )

    def __str__(self) -> str:
        return f"{self.cpus:g} CPU" + (f" and {self.gpus:g} GPU" if self.gpus else "")

    def fit(self, node: Mapping[str, float]) -> int:
        """How many trials a node that offers so much can hold at a time."""
        fits = int(node.get("CPU", 0) / self.cpus)
        return min(fits, int(node.get("GPU", 0) / self.gpus)) if self.gpus else fits


@contextlib.contextmanager
def cluster(meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Join the cluster that was found, or start Ray on loopback; leave it at the end.

    To start it takes seconds, which are spent waiting; what is to be done `meanwhile` is done.
    """
    for name in ("ray", "ray.tune"):
        logging.getLogger(name).setLevel(logging.ERROR)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    before = _terminate_gracefully()
    with ThreadPoolExecutor(1) as beside:  # what its thread has started ends when the thread does
        there = beside.submit(_join if ADDRESS else _start, quiet)
        try:
            meanwhile()
            there.result()
            _terminate_gracefully()  # Ray has put a handler of its own in place
            with contextlib.redirect_stdout(sys.stderr):  # Ray tells there of processes that died
                yield
        finally:
            there.exception()
            signal.signal(signal.SIGTERM, before)
            ray.shutdown()


def _terminate_gracefully() -> Any:
    """Let SIGTERM stop this process as Ctrl-C does; what it did before."""
    return signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))


def _start(quiet: Mapping[str, Any]) -> None:
    """Start Ray; on a busy machine its parts give each other up, and are started again.

    Raises:
        UserError: this process imported Ray too soon to know the token.
    """
    if TOO_LATE:  # each part would refuse this process, again and again
        raise UserError(
            "ray was imported before lmzoo.sweep could make the token that it starts behind; "
            "take `import ray` out of the study, or put it inside a function"
        )
    for more in reversed(range(STARTS)):
        try:
            ray.init(address="local", include_dashboard=False, **quiet)
        except Exception as error:  # Ray's own kind is none in particular
            if not more:
                raise
            LOG.warning("Ray did not start (%s); trying again", str(error).partition(".")[0])
        else:
            return


def refuse_impossible(resources: Resources) -> None:
    """Return as soon as a trial can be placed, now or on a node that is still to start.

    Raises:
        UserError: no node of the cluster can ever hold a trial.
    """
    deadline = time.monotonic() + JOIN
    while True:
        live = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        startable = _startable(len(live))
        if any(resources.fit(node) for node in live + [s for s in startable if s]):
            return
        if all(startable) or time.monotonic() >= deadline:
            break
        time.sleep(1)
    known = live + [s for s in startable if s]
    most = Resources(*(max((n.get(k, 0) for n in known), default=0) for k in ("CPU", "GPU")))
    raise UserError(
        f"a trial asks for {resources}, but no node of the cluster has or will have that (at most "
        f"{most.cpus:g} CPU, {most.gpus:g} GPU); lower --cpus-per-trial or --gpus-per-trial"
    )


def live_workers(resources: Resources) -> int:
    """How many trials run at a time, at most, on the nodes that are there."""
    found = sum(resources.fit(node["Resources"]) for node in ray.nodes() if node["Alive"])
    return min(found, resources.concurrent or found)


def max_workers(resources: Resources) -> int:
    """How many trials run at a time, at most, when all nodes are there that may be."""
    live = [resources.fit(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    more = [resources.fit(node) if node else max(live) for node in _startable(len(live))]
    return resources.concurrent or max(1, sum(live), sum(more))


def _join(quiet: Mapping[str, Any]) -> None:
    host, colon, port = ADDRESS.rpartition(":")
    try:
        if colon and port.isdecimal() and "/" not in host:  # Ray itself would try for a minute
            socket.create_connection((host, int(port)), timeout=5).close()
        # a submitted job has brought its source already
        source = {} if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ else runtime_env()
        ray.init(address="auto", runtime_env=source, **quiet)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"no Ray cluster answers at {ADDRESS} ({' '.join(str(error).split())[:200]}); start it "
            "with `ray up`, or set RAY_ADDRESS=local to use this machine alone"
        ) from None


def _startable(live: int) -> list[dict[str, float]]:
    """What each node offers that the autoscaler may start; {} is not known beforehand."""
    path = Path(DESCRIPTION).expanduser()
    if not ADDRESS or not path.exists():
        return []
    described = yaml.safe_load(path.read_text())
    if described["provider"]["type"] == "local":
        return [{}] * (1 + len(described["provider"].get("worker_ips", [])) - live)
    most = described.get("max_workers", 0)
    return [
        dict(kind.get("resources") or {})
        for kind in described["available_node_types"].values()
        for _ in range(min(kind.get("max_workers", most), most))
    ]
