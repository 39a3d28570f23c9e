"""Sweeps on one cluster share it: each gets an equal part, and what the others do not want.

Each sweep has an actor with a name, which says how many workers the sweep wants. Each driver asks
those of the others about once a second and computes the same shares. A sweep that has more than its
share, while another one has less, lets workers go after their epoch.
"""

import contextlib
import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

NAMESPACE = "lmzoo"
ANSWER_SECONDS = 0.5
"""How long another sweep may take to answer."""


class Demand(NamedTuple):
    """What a sweep wants of the cluster."""

    kind: str
    """Of the devices: sweeps on GPUs and on CPUs do not share."""
    wanted: int
    """Workers that it could use, at least those that it has."""
    workers: int
    """Those that it has."""
    room: int
    """How many workers of its size fit on the live nodes."""


def fair_shares(demands: Sequence[Demand]) -> list[int]:
    """Return the workers of each sweep.

    One at a time goes to the sweep that has the smallest part of the cluster and wants more, the
    first one of equal ones. Each gets one, also where there is no room for it now.
    """
    shares, left = [0] * len(demands), 1.0

    def open_(i: int) -> bool:
        room = demands[i].room
        fits = room and 1 / room <= left + 1e-9
        return shares[i] < demands[i].wanted and bool(fits or not shares[i])

    while takers := [i for i in range(len(demands)) if open_(i)]:
        taker = min(takers, key=lambda i: shares[i] / max(1, demands[i].room))
        shares[taker] += 1
        left -= 1 / max(1, demands[taker].room)
    return shares


class Board:
    """The actor that says what a sweep wants."""

    def __init__(self) -> None:
        self._demand: Demand | None = None

    def announce(self, demand: Demand) -> None:
        """Say what this sweep wants of the cluster."""
        self._demand = demand

    def demand(self) -> Demand | None:
        """Return what this sweep wants; None until it has said so."""
        return self._demand


class OtherSweeps:
    """The demands of the other sweeps on the cluster that this process has joined."""

    def __init__(self) -> None:
        """Start the actor of this sweep on this node; names sort in the order of the starts."""
        self._name = f"sweep-{time.time_ns():020d}-{secrets.token_hex(4)}"
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        options |= {"name": self._name, "namespace": NAMESPACE, "scheduling_strategy": here}
        self._board: Any = ray.remote(Board).options(**options).remote()
        self._demands: dict[str, Demand] = {}

    def look(self, own: Demand) -> tuple[list[Demand], int]:
        """Say what this sweep wants; return what all of its kind want, and its own place there.

        One that does not answer in time wants what it wanted before.
        """
        self._board.announce.remote(own)
        actors: list[Any] = ray.util.list_named_actors(all_namespaces=True)
        names = {a["name"] for a in actors if a["namespace"] == NAMESPACE} - {self._name}
        self._demands = {n: demand for n, demand in self._demands.items() if n in names}
        for name in names:
            with contextlib.suppress(RayError, ValueError):  # it has ended meanwhile
                board = ray.get_actor(name, NAMESPACE)
                demand: Any = ray.get(board.demand.remote(), timeout=ANSWER_SECONDS)
                if demand:
                    self._demands[name] = demand
        others = [(n, demand) for n, demand in self._demands.items() if demand.kind == own.kind]
        ordered = sorted([*others, (self._name, own)])
        return [demand for _, demand in ordered], [name for name, _ in ordered].index(self._name)
