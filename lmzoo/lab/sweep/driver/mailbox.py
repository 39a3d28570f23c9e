"""The mailbox: passes messages between the workers and the sweep's driver.

The mailbox is a small Ray actor on the driver's node. It stores messages and decides nothing: the
coordinator, a thread of the driver, fetches the messages and sends the replies. If the mailbox is
killed, Ray restarts it and repeats the calls that were not answered; so every message may arrive
twice.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lmzoo.lab.sweep.driver.other_sweeps import NAMESPACE, Demand
from lmzoo.lab.sweep.messages import Assignment, Exchange, Message

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
