"""The mailbox: passes messages between the workers and the sweep's driver.

The mailbox is a small Ray actor on the driver's node. It stores messages and decides nothing: the
coordinator, a thread of the driver, fetches the messages and sends the replies. If the mailbox is
killed, Ray restarts it and repeats the calls that were not answered; so every message may arrive
twice.

**Sweeps on one cluster share it**: each gets an equal part, and what the others do not want.
The mailbox of each sweep is an actor with a name, which says how many workers the sweep wants. Each
driver asks the others about once a second and computes the same shares. A sweep that has more than
its share, while another one has less, lets workers go after their epoch.
"""

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lmzoo.lab.sweep.messages import Assignment, Exchange, Message

NAMESPACE, PREFIX = "lmzoo", "sweep-"
"""Namespace and prefix of the names of mailboxes."""


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


def mailbox_name() -> str:
    """Return a new name; names sort in the order of the starts."""
    return f"{PREFIX}{time.time_ns():020d}-{secrets.token_hex(4)}"


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


class OtherSweeps:
    """The demands of the other sweeps on the cluster that this process has joined."""

    def __init__(self, mailbox: Any, name: str) -> None:
        """`mailbox` is that of this sweep, and `name` its name."""
        self._mailbox, self._name = mailbox, name
        self._asked: dict[str, ray.ObjectRef[Demand | None]] = {}
        self._demands: dict[str, Demand] = {}

    def look(self, own: Demand) -> tuple[list[Demand], int]:
        """Say what this sweep wants; return what all of its kind want, and its own place there.

        The answers of the others are those to the question of the last call: nothing waits.
        """
        self._mailbox.announce.remote(own)
        actors: list[Any] = ray.util.list_named_actors(all_namespaces=True)
        names = {a["name"] for a in actors if a["namespace"] == NAMESPACE} - {self._name}
        self._demands = {n: demand for n, demand in self._demands.items() if n in names}
        self._asked = {name: answer for name, answer in self._asked.items() if name in names}
        for name in names:
            with contextlib.suppress(RayError, ValueError):  # it has ended meanwhile
                self._ask(name)
        others = [(n, demand) for n, demand in self._demands.items() if demand.kind == own.kind]
        ordered = sorted([*others, (self._name, own)])
        return [demand for _, demand in ordered], [name for name, _ in ordered].index(self._name)

    def _ask(self, name: str) -> None:
        """Take the answer of a sweep, if it is there, and ask again."""
        if answer := self._asked.get(name):
            if not ray.wait([answer], timeout=0)[0]:
                return
            del self._asked[name]
            if demand := ray.get(answer):
                self._demands[name] = demand
        mailbox = ray.get_actor(name, NAMESPACE)
        self._asked[name] = mailbox.demand.remote()


CALLS = 100_000
"""Maximum number of unanswered calls; each worker has at most three."""


class Mailbox:
    """Messages from workers, replies to them, and the number of heartbeats of each worker."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._arrived = asyncio.Event()
        self._replies: dict[tuple[str, int], asyncio.Future[Any]] = {}
        self._heartbeats: Counter[str] = Counter()
        self._revoked: dict[str, list[str]] = {}
        self._demand: Demand | None = None

    async def exchange(self, message: Exchange) -> Assignment | None:
        """Send a worker's exchange; return the coordinator's reply to it."""
        reply = asyncio.get_running_loop().create_future()
        self._replies[message.worker, message.number] = reply
        await self.post(message)
        return await reply

    async def post(self, message: Message) -> None:
        """Send a message that has no reply."""
        self._messages.append(message)
        self._arrived.set()

    async def beat(self, worker: str) -> tuple[int, list[str]]:
        """Count a heartbeat of a worker; return the count, and the runs that it is to close.

        The count is 1 after a restart.
        """
        self._heartbeats[worker] += 1
        return self._heartbeats[worker], self._revoked.pop(worker, [])

    async def announce(self, demand: Demand) -> None:
        """Say what this sweep wants of the cluster."""
        self._demand = demand

    async def demand(self) -> Demand | None:
        """Return what this sweep wants; None until it has said so. Other sweeps ask."""
        return self._demand

    async def fetch(
        self,
        replies: Mapping[str, tuple[int, Any]],
        revoked: Mapping[str, list[str]],
        seconds: float,
    ) -> tuple[list[Message], dict[str, int]]:
        """Send replies; return the messages, as soon as there is one, and all heartbeat counts.

        Args:
            replies: Worker -> number of its last exchange and the reply to it.
            revoked: Worker -> runs to close, for its next heartbeat.
            seconds: Time after which an empty list is returned.
        """
        for worker, (number, reply) in replies.items():
            future = self._replies.pop((worker, number), None)
            if future is not None and not future.done():
                future.set_result(reply)
        self._revoked.update(revoked)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._arrived.wait(), seconds)
        messages, self._messages = self._messages, []
        self._arrived.clear()
        return messages, dict(self._heartbeats)


def start_mailbox(name: str) -> Any:
    """Start the mailbox on this node and return its handle."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(Mailbox).options(
        name=name,
        namespace=NAMESPACE,
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=-1,
        max_concurrency=CALLS,
        scheduling_strategy=here,
    )
    return actor.remote()
