"""A trial's pulse: a process that stands still is not dead, and Ray would wait for it.

Ray notices at once that a process has ended. One that is stopped (SIGSTOP, a frozen
virtual machine) it takes for a busy one for minutes, and Tune's driver then waits for its
answers in places that have no time-out. So a thread of each trial puts a new number into
Ray's key-value store every `BEAT` seconds, however long an epoch takes, and a thread of
the sweep looks as often. A trial whose number was the same for `MISSED` looks is killed
by SIGKILL, which a stopped process obeys as well: it writes nothing any more, its locks
go, and Tune starts the trial again as it does after any death.

Looks are counted and not seconds: a sweep that was itself stopped, or cut off from Ray,
saw nothing and blames nobody.
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

BEAT = 10.0
"""Seconds between two beats, and between two looks."""
MISSED = 6
"""Looks without a beat after which a trial is given up."""
NAMESPACE = "lmzoo-pulse"
LOG = logging.getLogger("lmzoo.sweep")


def start_heartbeat() -> None:
    """Show that this actor's process runs, from now on until it ends; elsewhere do nothing."""
    if ray.is_initialized():
        actor = ray.get_runtime_context().get_actor_id()
        threading.Thread(target=_go_on, args=(actor,), daemon=True).start()


def _go_on(actor: str) -> None:
    for count in itertools.count():
        try:
            internal_kv._internal_kv_put(actor, str(count), namespace=NAMESPACE)
        except Exception as error:  # Ray is away, and with it whoever would miss the beat
            LOG.debug("no beat: %s", error)
        time.sleep(BEAT)


class HeartbeatMonitor(Callback):
    """Looks after the trials' pulses for as long as it is entered."""

    def __init__(self) -> None:
        self._actors: dict[str, weakref.ref[Any]] = {}
        """Weak, as Ray ends an actor that nobody has a handle of."""
        self._seen: dict[str, tuple[bytes | None, int]] = {}
        """Last number, and how often it was the same since."""
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look_until_over, daemon=True)

    def __enter__(self) -> "Pulses":
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join(BEAT)  # Ray may be gone, and the thread wait for it

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has an actor from now on: a new one, or one that another has left."""
        actor = trial.temporary_state.ray_actor
        self._actors[actor._actor_id.hex()] = weakref.ref(actor)

    def look(self) -> None:
        """Take in every pulse, and kill whoever has had none for too long."""
        try:
            beats = dict(self._beats())
        except Exception as error:  # Ray does not answer: nobody's fault
            LOG.debug("no look: %s", error)
            return
        for name, (actor, now) in beats.items():
            last, missed = self._seen.get(name, (None, 0))
            self._seen[name] = now, missed + 1 if now == last else 0
            if self._seen[name][1] >= MISSED:
                self._give_up(name, actor)

    def _beats(self) -> Iterator[tuple[str, tuple[Any, bytes | None]]]:
        """Every actor that still has work, with its number."""
        for name, reference in list(self._actors.items()):
            actor = reference()
            if actor is None:
                self._forget(name)
            else:
                number = internal_kv._internal_kv_get(name, namespace=NAMESPACE)
                yield name, (actor, number)

    def _give_up(self, name: str, actor: Any) -> None:
        LOG.warning(
            "a trial has shown no life for %.0f s; it is killed and started again", MISSED * BEAT
        )
        try:
            ray.kill(actor)
            self._forget(name)
        except Exception as error:  # Ray has gone meanwhile; the next look tries again
            LOG.debug("not killed: %s", error)

    def _forget(self, name: str) -> None:
        self._actors.pop(name)
        self._seen.pop(name, None)
        internal_kv._internal_kv_del(name, namespace=NAMESPACE)

    def _look_until_over(self) -> None:
        while not self._over.wait(BEAT):
            self.look()
