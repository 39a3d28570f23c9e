"""Heartbeats: detects workers whose process is stopped but has not ended.

Ray notices at once when a process ends. A stopped process (SIGSTOP, a frozen virtual machine) looks
busy to it for minutes, and Ray Tune's driver then waits for the process in calls without a timeout.
So a thread of each worker writes a new number to Ray's key-value store every `INTERVAL` seconds,
however long an epoch takes. A thread of the sweep checks the numbers at the same interval, and
kills a worker whose number has not changed for `MAX_MISSED` checks. SIGKILL ends a stopped process
too: its locks are released, and the dispatcher restarts its pack as after any death.

The sweep counts checks, not seconds: time in which it was stopped or disconnected does not count.
"""

import itertools
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import ray
from ray.experimental import internal_kv
from ray.tune import Callback

INTERVAL = 10.0
"""Seconds between two heartbeats, and between two checks."""
MAX_MISSED = 6
"""Consecutive checks without a heartbeat after which a worker is killed."""
NAMESPACE = "lmzoo-heartbeat"
LOG = logging.getLogger("lmzoo.sweep")


def start_heartbeat() -> None:
    """Send heartbeats from this actor until its process ends; do nothing outside of Ray."""
    if ray.is_initialized():
        actor_id = ray.get_runtime_context().get_actor_id()
        threading.Thread(target=_send_heartbeats, args=(actor_id,), daemon=True).start()


def _send_heartbeats(actor_id: str) -> None:
    for count in itertools.count():
        try:
            internal_kv._internal_kv_put(actor_id, str(count), namespace=NAMESPACE)
        except Exception as error:  # Ray is not reachable, so no sweep checks the heartbeat
            LOG.debug("no heartbeat sent: %s", error)
        time.sleep(INTERVAL)


class HeartbeatMonitor(Callback):
    """Checks the heartbeats of all workers in a thread that runs while the context is entered."""

    def __init__(self) -> None:
        self._actors: dict[str, weakref.ref[Any]] = {}
        """Actor id -> handle; weak, because Ray ends an actor when its last handle is deleted."""
        self._last: dict[str, tuple[bytes | None, int]] = {}
        """Actor id -> its last number, and the number of checks since it changed."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._check_until_stopped, daemon=True)

    def __enter__(self) -> "HeartbeatMonitor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(INTERVAL)  # with a timeout: the thread may wait for a Ray that has gone

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Monitor the trial's actor, which may be new or reused."""
        actor = trial.temporary_state.ray_actor
        self._actors[actor._actor_id.hex()] = weakref.ref(actor)

    def check(self) -> None:
        """Read all heartbeats, and kill the workers that have missed too many."""
        try:
            heartbeats = dict(self._read_heartbeats())
        except Exception as error:  # Ray does not respond, which says nothing about the workers
            LOG.debug("heartbeats not checked: %s", error)
            return
        for actor_id, (actor, number) in heartbeats.items():
            last_number, missed = self._last.get(actor_id, (None, 0))
            missed = missed + 1 if number == last_number else 0
            self._last[actor_id] = number, missed
            if missed >= MAX_MISSED:
                self._kill(actor_id, actor)

    def _read_heartbeats(self) -> Iterator[tuple[str, tuple[Any, bytes | None]]]:
        """Yield (actor id, (handle, number)) of every actor that Ray Tune still uses."""
        for actor_id, reference in list(self._actors.items()):
            actor = reference()
            if actor is None:
                self._remove(actor_id)
            else:
                number = internal_kv._internal_kv_get(actor_id, namespace=NAMESPACE)
                yield actor_id, (actor, number)

    def _kill(self, actor_id: str, actor: Any) -> None:
        seconds = MAX_MISSED * INTERVAL
        LOG.warning(
            "a worker has sent no heartbeat for %.0f s; it is killed and restarted", seconds
        )
        try:
            ray.kill(actor)
            self._remove(actor_id)
        except Exception as error:  # Ray is not reachable; the next check tries again
            LOG.debug("worker not killed: %s", error)

    def _remove(self, actor_id: str) -> None:
        self._actors.pop(actor_id)
        self._last.pop(actor_id, None)
        internal_kv._internal_kv_del(actor_id, namespace=NAMESPACE)

    def _check_until_stopped(self) -> None:
        while not self._stopped.wait(INTERVAL):
            self.check()
