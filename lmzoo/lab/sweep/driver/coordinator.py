"""The coordinator: starts the workers, answers them, and replaces those that die.

The workers are actors that Ray Core or Ray Tune places (`placement.py`); the planner decides. As
many are requested as runs could use and the cluster has or can start. One that Ray has no room for
waits, and is the demand that an autoscaler sees.

For each worker it waits for two calls: its epoch, after which the fleet decides what it does next,
and its news, which are its heartbeat. A worker that misses `MAX_MISSED` checks is killed: its
process is stopped (SIGSTOP, a frozen virtual machine), and Ray would regard it as busy for minutes.
The checks are counted, not the seconds: time in which the sweep itself is stopped does not count.
"""

import functools
import logging
import re
import secrets
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import ray
from ray.exceptions import RayError

from lmzoo.base.errors import UserError
from lmzoo.base.stops import STOPS
from lmzoo.lab.cluster.capacity import Capacity
from lmzoo.lab.store.pack_files import unpack
from lmzoo.lab.store.records import WORKER_LOCK
from lmzoo.lab.store.writer import News as Warnings
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.messages import Assignment, Ended, Exchange, Failed, News, Released, Started
from lmzoo.lab.sweep.worker.worker import HEARTBEAT_SECONDS

LOG = logging.getLogger("lmzoo.lab.sweep")
WAIT_SECONDS = 0.05
"""How long one turn waits for a worker."""
MAX_FAILED_STARTS = 4
"""Consecutive workers that end before their first message; then the sweep ends."""
MEMORY_SECONDS = 5.0
"""Pause of new workers after Ray killed one to free memory; it doubles with each failed start."""
OUT_OF_MEMORY = (
    "Ray killed the worker because the memory of its node, {}, ran out; close other programs "
    "there, or use fewer workers (--max-concurrent)"
)
LOW_MEMORY = re.compile(r"low on memory(?:.*?IP: (\S+), ID: (\w{6}))?", re.DOTALL)
"""Ray's error about a worker that it has killed, and the node."""
MAX_KILLED = 3
"""Workers that Ray may kill on a node for want of memory before the node is left out."""
START_SECONDS = 60.0
"""How long a sweep whose first workers cannot start waits for a worker that can."""
LOOK_SECONDS = 1.0
"""Time between two looks at the cost."""
MAX_MISSED = 6
"""Consecutive checks without a heartbeat after which a worker is killed."""
REPLY_SECONDS = 5.0
"""A worker without an assignment gets an empty one after this time, as a sign of life."""
IDLE_SECONDS = 60.0
"""A worker without an assignment for this time ends, so that its machine can be used or ended."""
END_SECONDS = 8.0
"""How long the workers may take to end when the sweep has ended."""
RECOVERY_SECONDS = 300.0
"""How long the lock of a dead worker may stay taken; a file server may need minutes to free it."""
RECOVERY = "recovery"
"""Name of the threads that wait for the lock of a dead worker."""


@dataclass(eq=False)
class Actor:
    """A worker that was started and has not ended."""

    name: str
    handle: Any = None
    """None until it is placed."""
    call: Any = None
    """What its start, its work or its end will return; None while it waits for an assignment."""
    news: Any = None
    node: str = ""
    """Ray's id."""
    place: str = ""
    """Its machine: host name and the first digits of the node id."""
    exchange: Exchange | None = None
    """Its last report."""
    steps: int = 0
    received: int = 0
    """How many news have arrived."""
    missed: int = 0
    """Checks since the last news."""
    answered: float = 0.0
    """When its last call ended, or when it got a sign of life."""
    idle_since: float | None = None
    broken_since: float | None = None
    """Since when it is known that it cannot train."""
    leaves: bool = False


class Coordinator:
    """Runs the workers of a sweep; `error` is what ended it early."""

    def __init__(
        self,
        fleet: Fleet,
        capacity: Capacity,
        place: Callable[[str], object],
        begin: Callable[[Any], Any],
        server: Any = None,
    ):
        """`place` lets Ray place a worker of this name, for which `placed` is called then.

        `begin` starts a worker of this handle and returns its call. `server` gives the store to
        workers that do not see it (`head_store.py`).
        """
        self.fleet = fleet
        self.store = fleet.planner.store.store
        self.capacity = capacity
        self.server = server
        self.error: Exception | None = None
        self.actors = dict[str, Actor]()
        self._place = place
        self._begin = begin
        self._works = False
        """Whether a worker has asked for runs."""
        self._named = set[str]()
        """Nodes that were left out with a warning."""
        self._warnings = Warnings(LOG)
        self._killed = Counter[str]()
        """Node -> workers that Ray killed there for want of memory since its last epoch."""
        self._failed_starts = 0
        self._pause_until = 0.0
        """No worker starts before this time; of the monotonic clock."""
        self._next_check = time.monotonic() + HEARTBEAT_SECONDS
        self._cost = 0.0
        self._counted = time.monotonic()
        """Seconds of all workers, and until when they are counted."""
        self._recoveries = threading.Semaphore(16)
        self._recovered = SimpleQueue[Callable[[], object]]()
        """What to do for dead workers whose locks are free."""

    def turns(self) -> Iterator[None]:
        """Answer the workers until the sweep ends; those that train then may write their runs."""
        while not self.finished:
            yield self.turn()
        deadline = time.monotonic() + END_SECONDS
        for actor in list(self.actors.values()):
            # One that the fleet does not know has no runs to write.
            if actor.name not in self.fleet.workers and not actor.leaves:
                self._kill(actor)
        while self.actors and time.monotonic() < deadline:
            yield self.turn()
        for actor in list(self.actors.values()):
            self._kill(actor)

    @property
    def finished(self) -> bool:
        """Whether the study is done, or an error or a signal has ended the sweep."""
        if self.error is not None or STOPS.requested.is_set():
            return True
        return self.fleet.done

    def wanted(self) -> int:
        """Return how many workers can be used and may exist at this moment."""
        if self.finished or time.monotonic() < self._pause_until:
            return 0
        # Parked workers stay, and keep Ray from starting others on their nodes.
        parked = len(self.fleet.parked)
        return self.fleet.wanted(self.capacity.limit() - parked) + parked

    def turn(self):
        """Start the workers that are wanted, take what the workers have sent, and answer."""
        try:
            # How many are worth their cost takes long to compute; a full cluster has no room.
            if len(self.actors) < self.capacity.limit():
                for _ in range(len(self.actors), self.wanted()):
                    name = secrets.token_hex(4)
                    self.actors[name] = Actor(name)
                    self._place(name)
            actors = self._ready()
            if self.error is None:
                self.fleet.planner.store.check_lock()
            for actor, call in actors:
                self._take(actor, call)
            while not self._recovered.empty():
                self._recovered.get()()
            self._wake_idle()
            self._check_nodes()
            started = [actor for actor in self.actors.values() if actor.node]
            self.capacity.started = len(started)
            now = time.monotonic()
            if now >= self._counted + LOOK_SECONDS:
                self._check_cost(len(started))
            if now >= self._next_check:
                self._next_check = now + HEARTBEAT_SECONDS
                self.capacity.check()
                self._check_heartbeats(started)
        except Exception as error:
            self._end(error)

    def _end(self, error: Exception):
        """End the sweep early; the first error counts, because others may follow from it."""
        if self.error is None:
            self.error = error

    def placed(self, name: str, handle: Any):
        """Start a worker whose process has a place; the sweep may not need it any more."""
        if name not in self.actors:  # given up while it waited for a place
            ray.kill(handle)
            return
        actor = self.actors[name]
        actor.handle = handle
        actor.call = self._begin(handle)
        actor.news = handle.news.remote(0)

    def lost(self, name: str, error: str):
        """Count a worker whose process could not be started; `error` is Ray's text."""
        actor = self.actors.get(name)
        if actor is not None and actor.handle is None:
            lines = error.split("\n")
            self._died(actor, error, lines[-1])

    def _ready(self) -> list[tuple[Actor, Any]]:
        """Return the calls that have ended, those with news first, with their workers."""
        actors = self.actors.values()
        calls = {actor.news: actor for actor in actors if actor.handle is not None}
        for actor in list(calls.values()):
            if actor.call is not None:
                calls[actor.call] = actor
        if not calls:
            time.sleep(WAIT_SECONDS)
            return []
        first, _ = ray.wait(list(calls), timeout=WAIT_SECONDS)
        if not first:
            return []
        # All that have ended by now: news count before the answers that came after them.
        ended, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
        return [(calls[call], call) for call in ended]

    def _take(self, actor: Actor, call: Any):
        if actor.name not in self.actors:
            return  # another call of it has ended, too
        try:
            result: Any = ray.get(call)
        except RayError as error:  # its process, its node or its answer is lost
            self._died(actor, str(error))
            ray.kill(actor.handle)  # a node that does not answer may answer later
            return
        if call == actor.news:
            actor.missed = 0  # news are its heartbeat
            actor.received += len(result)
            actor.news = actor.handle.news.remote(actor.received)
            for news in result:
                self._hear(actor, news)
        elif actor.leaves:  # its `close` has returned: all is written
            self._ended(actor, died=False)
            actor.handle.__ray_terminate__.options(max_task_retries=0).remote()
            return
        elif not actor.node:
            return  # the call is taken after the first news
        elif isinstance(result, Failed) and actor.steps:
            self._ended(actor, result.reason, raised=True)
            ray.kill(actor.handle)
            return
        else:
            self._arrived(actor, result)
        if actor.call is None and actor.name not in self.fleet.idle:
            self._answer(actor)

    def _hear(self, actor: Actor, news: News):
        match news:
            case Started(node, host):
                actor.node = node
                actor.place = f"{host} ({node[:6]})"
            case Released(run):
                self.fleet.released(actor.name, run)
            case Ended():
                self.fleet.ended(actor.name, news)
            case _:
                self._warnings.say("store", time.monotonic(), "%s: %s", actor.place, news)

    def _arrived(self, actor: Actor, result: Exchange | Failed):
        actor.call = None
        actor.answered = time.monotonic()
        if isinstance(result, Failed):
            actor.broken_since = actor.answered
            actor.exchange = Exchange(actor.name)
            self.fleet.health.left_out.setdefault(actor.place, result.reason)
            return
        actor.exchange = result
        self._works = True
        self._failed_starts = 0
        if result.reports:  # counted since the last epoch
            self._killed.pop(actor.place, None)

    def _answer(self, actor: Actor):
        """Give a worker its next assignment, if there is one, after the news that come before."""
        exchange = actor.exchange
        if exchange is None or actor.received < exchange.news:
            return
        if self.finished:
            self._leave(actor)
            return
        now = time.monotonic()
        assignment = self.fleet.exchange(
            exchange, live=self.capacity.live(), now=now, node=actor.place
        )
        if assignment is not None:
            self._step(actor, assignment)
        elif actor.idle_since is None:
            actor.idle_since = now

    def _step(self, actor: Actor, assignment: Assignment):
        if assignment.members:  # an empty one is a sign of life only
            actor.idle_since = None
        actor.steps += 1
        actor.exchange = None
        actor.call = actor.handle.work.remote(actor.steps, assignment)

    def _leave(self, actor: Actor):
        actor.leaves = True
        actor.exchange = None
        actor.call = actor.handle.close.remote()

    def _wake_idle(self):
        now = time.monotonic()
        parked = set(self.fleet.parked)
        for worker in list(self.fleet.idle):
            actor = self.actors[worker]
            if actor.call is not None or actor.exchange is None:
                continue
            # It still has the runs whose ends are being written.
            leaving = self.fleet.workers[worker].leaving
            waited = 0.0
            if actor.idle_since is not None:
                waited = now - actor.idle_since
            waits_long = waited > IDLE_SECONDS and worker not in parked
            if self.finished or (waits_long and not leaving):
                self.fleet.gone(worker)
                self._leave(actor)
            elif self.fleet.ready and worker not in parked:
                actor.exchange = actor.exchange._replace(opened=list(leaving), reports=())
                self._answer(actor)
            elif now - actor.answered > REPLY_SECONDS:
                self._step(actor, Assignment())

    def _died(self, actor: Actor, error: str, reason: str = ""):
        """Take a worker away whose process is lost; Ray's error says whether memory was short."""
        counts = True
        found = LOW_MEMORY.search(error)
        if found:
            place = "which is not known"
            if found[1]:
                place = f"{found[1]} ({found[2]})"
            for other in self.actors.values():
                if other.place.endswith(place[-8:]):
                    place = other.place  # Ray names the address, a worker its host
            reason = OUT_OF_MEMORY.format(place)
            counts = not self._is_known_shortage(place, reason)
        self._ended(actor, reason, counts=counts)

    def _ended(
        self,
        actor: Actor,
        reason: str = "",
        *,
        died: bool = True,
        raised: bool = False,
        counts: bool = True,
    ):
        """Return the runs of a worker that has ended to the pending runs.

        They are pending again when the worker's lock is free, which may expire first. `raised` says
        that the reason is an error of its training; `counts`, whether a death at its start counts.
        """
        del self.actors[actor.name]
        interrupted = False
        if actor.node:
            # A machine that went away is no fault of the runs.
            interrupted = not self.capacity.node_alive(actor.node)
        if died and counts and not interrupted and actor.name not in self.fleet.workers:
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                why = reason or "see Ray's log files"
                text = f"{self._failed_starts} workers failed at their start: {why}"
                self._end(UserError(text))
        runs = self.fleet.gone(actor.name)
        if runs or died:
            give_back = functools.partial(
                self.fleet.give_back,
                runs,
                interrupted=interrupted,
                reason=reason,
                node=actor.place,
                killed=not raised,
            )
            # In a thread: a file server may need minutes to free the lock.
            recover = threading.Thread(
                target=self._recover,
                args=(actor.name, give_back),
                name=RECOVERY,
                daemon=True,  # an interrupted sweep does not wait for the lock
            )
            recover.start()

    def _recover(self, worker: str, give_back: Callable[[], object]):
        try:
            with self._recoveries:
                if self.server is not None:
                    ray.get(self.server.close.remote(worker))
                # A worker that still lives somewhere may write as long as it has its lock.
                self.store.clear_locks(WORKER_LOCK.format(worker), RECOVERY_SECONDS)
                unpack(self.store, worker)
            self._recovered.put(give_back)
        except Exception as error:
            self._end(error)

    def _kill(self, actor: Actor):
        del self.actors[actor.name]
        if actor.handle is not None:
            ray.kill(actor.handle)

    def _is_known_shortage(self, node: str, reason: str) -> bool:
        """Return whether the memory of a node is known to be short; if not, say so, and pause.

        One shortage kills several workers. A node on which Ray kills `MAX_KILLED` of them without
        an epoch in between is left out, if there is another.
        """
        now = time.monotonic()
        health = self.fleet.health
        if now < self._pause_until or node in health.left_out:
            return True
        self._killed[node] += 1
        if self._killed[node] >= MAX_KILLED and self.fleet.nodes - {node}:
            health.left_out[node] = f"Ray killed {MAX_KILLED} workers for want of memory"
            return True
        pause = MEMORY_SECONDS * 2**self._failed_starts
        self._pause_until = now + pause
        text = "%s; new workers start in %.0f s"
        self._warnings.say(("memory", node), now, text, reason, pause)
        return False

    def _check_nodes(self):
        left_out = self.fleet.health.left_out
        for node in left_out.keys() - self._named:
            self._named.add(node)
            if self._works:
                LOG.warning("%s is left out: %s", node, left_out[node])
        places = []
        times = []
        for actor in self.actors.values():
            if actor.broken_since is not None:
                places.append(actor.place)
                times.append(actor.broken_since)
        if places and not self.error:
            is_all = len(places) >= self.capacity.live()
            latest = time.monotonic() - START_SECONDS
            hopeless = is_all or min(times) < latest
            if self._works:  # a better node, where some have trained, may come back
                hopeless = is_all and max(times) < latest
            if hopeless:
                node = min(places)
                self._end(UserError(f"no worker can start on {node}: {left_out[node]}"))

    def _check_cost(self, workers: int):
        now = time.monotonic()
        most = self.capacity.resources.hours
        self._cost += workers * (now - self._counted)
        self._counted = now
        hours = self._cost / 3600
        if most and hours >= most and not self.fleet.done:
            store = shlex.quote(str(self.store))
            self._end(
                UserError(
                    f"--max-cost {most:g}: the workers have used {hours:.3g} hours; the same "
                    f"command continues, and `lmzoo rank {store}` ranks what has ended"
                )
            )

    def _check_heartbeats(self, started: Sequence[Actor]):
        hung = self.fleet.hung(time.monotonic())
        for actor in started:
            actor.missed += 1  # news set it to 0
            reason = None
            if actor.missed == 1:  # one without heartbeats is stopped, and does not hang
                reason = hung.get(actor.name)
            if actor.missed > MAX_MISSED:
                seconds = MAX_MISSED * HEARTBEAT_SECONDS
                reason = f"a worker has sent no heartbeat for {seconds:.0f} s"
            if reason:
                LOG.warning("%s; the worker is killed", reason)
                self._ended(actor, reason)
                ray.kill(actor.handle)
