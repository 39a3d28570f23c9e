"""A worker as a trial of Ray Tune (`--engine tune`).

The process of a worker imports this file, and nothing of the driver. The coordinator calls the
worker, so each of them serves several calls at the same time: a method that is `async` makes the
process of a trial such an actor.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ray import tune

from lmzoo.lab.sweep.worker.worker import Worker

WORKER = "worker"
"""Key of the name of a worker in the config of its trial."""


def _of_worker(name: str) -> Callable[..., Any]:
    """Return a method that a thread does."""

    async def call(self: "PackTrial", *given: Any, **facts: Any) -> Any:
        # In a thread: an epoch would block the news, which are the heartbeat.
        return await asyncio.to_thread(getattr(self.worker, name), *given, **facts)

    return call


class PackTrial(tune.Trainable):
    """A worker as a trial."""

    def setup(self, config: dict[str, Any]):
        """Make the worker, which the coordinator starts."""
        self.worker = Worker(config[WORKER])

    def step(self) -> dict[str, Any]:
        """Return at once: the coordinator calls the worker."""
        return {}

    start = _of_worker("start")
    work = _of_worker("work")
    news = _of_worker("news")
    close = _of_worker("close")
