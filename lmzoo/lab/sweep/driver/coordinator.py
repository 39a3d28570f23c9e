"""The coordinator: a thread of the driver that answers the workers.

It fetches messages from the mailbox, lets the fleet decide, and sends the replies. It detects
workers whose process is stopped but has not ended (SIGSTOP, a frozen virtual machine): Ray regards
them as busy for minutes. Each worker sends a heartbeat every `HEARTBEAT_SECONDS`; one that misses
`MAX_MISSED` checks is killed, and Ray reports its death.

The checks are counted, not the seconds: time in which the sweep itself is stopped does not count.
"""

import functools
import logging
import pickle
import shlex
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray

from lmzoo.base.errors import UserError
from lmzoo.base.stops import STOPS
from lmzoo.lab.cluster.capacity import Capacity
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.pack_files import unpack
from lmzoo.lab.store.records import WORKER_LOCK
from lmzoo.lab.store.writer import News
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.sweep.driver.mailbox import Demand, OtherSweeps, fair_shares
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.messages import (
    Assignment,
    Confirmed,
    Exchange,
    Failed,
    Hello,
    Message,
    Released,
    Waiting,
)
from lmzoo.lab.sweep.worker.worker import HEARTBEAT_SECONDS

LOG = logging.getLogger("lmzoo.lab.sweep")
MAX_FAILED_STARTS = 4
"""Consecutive workers that end before their first message; then the sweep ends."""
MEMORY_SECONDS = 5.0
"""Pause of new workers after Ray killed one to free memory; it doubles with each failed start."""
OUT_OF_MEMORY = (
    "Ray killed the worker because the memory of its node, {}, ran out; close other programs "
    "there, or use fewer workers (--max-concurrent)"
)
MAX_KILLED = 3
"""Workers that Ray may kill on a node for want of memory before the node is left out."""
START_SECONDS = 60.0
"""How long a sweep whose first workers cannot start waits for a worker that can."""
LOOK_SECONDS = 1.0
"""Time between two looks at the cost and at workers that are overdue."""
MAX_MISSED = 6
"""Consecutive checks without a heartbeat after which a worker is killed."""
REPLY_SECONDS = 5.0
"""A worker without an assignment gets an empty one after this time, as a sign of life."""
IDLE_SECONDS = 60.0
"""A worker without an assignment for this time ends, so that its machine can be used or ended."""
RECOVERY_SECONDS = 300.0
"""How long the lock of a dead worker may stay taken; a file server may need minutes to free it."""
RECOVERY = "recovery"
"""Name of the threads that wait for the lock of a dead worker."""
NOTHING = Assignment()


class Coordinator:
    """Runs while its context is entered; `error` is what ended it early."""

    def __init__(
        self,
        fleet: Fleet,
        store: Store,
        capacity: Capacity,
        mailbox: Any,
        server: Any = None,
        others: OtherSweeps | None = None,
    ) -> None:
        """`server` gives the store to workers that do not see it (`head_store.py`)."""
        self.fleet, self.store, self.capacity, self.server = fleet, store, capacity, server
        self.error: Exception | None = None
        self._mailbox, self._others = mailbox, others
        self._sweeps = 1
        self._share: int | None = None
        """Workers that other sweeps leave to this one; None: there is no other."""
        self._mutex = threading.RLock()
        self._replies: dict[str, tuple[int, Assignment | None]] = {}
        self._numbers: dict[str, int] = {}
        """Worker -> number of its last exchange."""
        self._idle_since: dict[str, float] = {}
        self._replied_at: dict[str, float] = {}
        self._handles: dict[str, tuple[Any, str]] = {}
        """Worker -> (actor handle, node id)."""
        self._nodes: dict[str, str] = {}
        """Worker -> its machine: host name and the first digits of the node id."""
        self._broken: dict[str, float] = {}
        """Workers that could not start -> since when."""
        self._works = False
        """Whether a worker has asked for runs."""
        self._named: set[str] = set()
        """Nodes that were left out with a warning."""
        self._reasons: dict[str, str] = {}
        self._raised = set[str]()
        """Workers that have said why they end."""
        self._news = News(LOG)
        self._killed: Counter[str] = Counter()
        """Node -> workers that Ray killed there for want of memory since its last epoch."""
        self._gone: set[str] = set()
        self._failed_starts = 0
        self._revoked: dict[str, list[str]] = {}
        """Worker -> runs that it is to close in the middle of an epoch."""
        self._pause_until = 0.0
        """No worker starts before this time; of the monotonic clock."""
        self._beats: dict[str, tuple[int, int]] = {}
        """Worker -> (number of heartbeats, checks since it changed)."""
        self._next_check = time.monotonic() + HEARTBEAT_SECONDS
        self._cost, self._counted = 0.0, time.monotonic()
        """Seconds of all workers, and until when they are counted."""
        self._recoveries = threading.Semaphore(16)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Coordinator":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(HEARTBEAT_SECONDS)  # with a timeout: Ray may have gone

    @property
    def finished(self) -> bool:
        """Whether the study is done, or an error or a signal has ended the sweep.

        While an exchange is answered, the last tuning run has ended and no confirm run is planned.
        """
        if self.error is not None or STOPS.requested.is_set():
            return True
        with self._mutex:
            return self.fleet.done

    @property
    def is_running(self) -> bool:
        """Whether it still answers the workers."""
        return self._thread.is_alive()

    def has_asked(self, worker: str) -> bool:
        """Return whether a worker has asked for runs; if not, it has none."""
        with self._mutex:
            return worker in self.fleet.workers or worker in self._gone

    def wanted(self) -> int:
        """Return how many workers can be used and may exist at this moment."""
        with self._mutex:
            if self.finished or time.monotonic() < self._pause_until:
                return 0
            wanted = self._wanted()
            return wanted if self._share is None else min(wanted, self._share)

    def _wanted(self) -> int:
        """Return how many workers can be used, if there were no other sweep."""
        parked = len(self.fleet.parked)
        return self.fleet.wanted(self.capacity.limit() - parked) + parked

    def _live(self) -> int:
        """Return how many workers there is room for."""
        live = self.capacity.live()
        return live if self._share is None else min(live, self._share)

    def _share_cluster(self) -> None:
        """Leave other sweeps their part: ask for no more workers, and let some go."""
        if self._others is None:
            return
        workers = len(self.fleet.workers) - len(self.fleet.dismissed)
        kind = "gpu" if self.capacity.resources.gpus else "cpu"
        own = Demand(kind, max(workers, self._wanted()), workers, self.capacity.room())
        demands, place = self._others.look(own)
        if len(demands) != self._sweeps:
            several = f"{len(demands)} sweeps use this cluster and share it"
            LOG.warning(several if len(demands) > 1 else "no other sweep uses this cluster now")
        self._sweeps, self._share = len(demands), None
        if self._sweeps > 1:
            shares = fair_shares(demands)
            others = [i for i in range(len(demands)) if i != place]
            waits = any(demands[i].workers < shares[i] for i in others)
            growing = self.capacity.limit() - self.capacity.live()
            self._share = shares[place] + (0 if waits else growing)
            if waits and workers > shares[place]:
                self.fleet.dismiss(workers - shares[place])

    def worker_ended(self, worker: str, *, died: bool, memory: str = "") -> None:
        """Return the runs of a worker that has ended to the pending runs.

        They are pending again as soon as the worker's lock is free: at once if its process has
        ended, and after the expiry of its lock if its machine does not respond.

        Ray kills workers also where another program needs the memory of their node, which `memory`
        names: new ones start after a pause, which doubles if they are killed, too.
        """
        with self._mutex:
            self._gone.add(worker)
            _, node = self._handles.pop(worker, (None, ""))
            self._broken.pop(worker, None)
            self._beats.pop(worker, None)
            interrupted = bool(node) and not self.capacity.node_alive(node)
            known = bool(memory) and self._is_known_shortage(worker, memory)
            if died and not interrupted and not known and worker not in self.fleet.workers:
                self._count_failed_start(worker)
            runs = self.fleet.gone(worker, interrupted=interrupted)
        if runs or died:
            # A daemon thread, because an interrupted sweep does not wait for the lock.
            recover = functools.partial(self._recover, worker, runs, interrupted=interrupted)
            threading.Thread(target=recover, name=RECOVERY, daemon=True).start()

    def _is_known_shortage(self, worker: str, node: str) -> bool:
        """Return whether the memory of a node is known to be short; if not, say so, and pause.

        One shortage kills several workers. A node on which Ray kills `MAX_KILLED` workers without
        an epoch in between is left out, if there is another one.
        """
        own = [name for name in self._nodes.values() if name.endswith(node[node.find("(") :])]
        node = own[0] if own else node
        self._reasons[worker] = OUT_OF_MEMORY.format(node)
        now, health = time.monotonic(), self.fleet.health
        if now < self._pause_until or node in health.left_out:
            return True
        self._killed[node] += 1
        if self._killed[node] >= MAX_KILLED and self.fleet.nodes - {node}:
            health.leave_out(node, f"Ray killed {MAX_KILLED} workers for want of memory")
            return True
        pause = MEMORY_SECONDS * 2**self._failed_starts
        self._pause_until = now + pause
        text = "%s; new workers start in %.0f s"
        self._news.say(("memory", node), now, text, self._reasons[worker], pause)
        return False

    def _count_failed_start(self, worker: str) -> None:
        self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_STARTS and not self.error:
            reason = self._reasons.get(worker, "see Ray's log files")
            self.error = UserError(f"{self._failed_starts} workers failed at their start: {reason}")

    def _recover(self, worker: str, runs: Sequence[PlannedRun], *, interrupted: bool) -> None:
        try:
            with self._recoveries:
                if self.server is not None:
                    ray.get(self.server.close.remote(worker))
                self.store.clear_locks(WORKER_LOCK.format(worker), RECOVERY_SECONDS)
                unpack(self.store, worker)
            with self._mutex:
                self.fleet.give_back(
                    runs,
                    interrupted=interrupted,
                    reason=self._reasons.get(worker, ""),
                    node=self._nodes.get(worker, ""),
                    killed=worker not in self._raised,
                )
        except Exception as error:
            self.error = self.error or error

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                replies, self._replies = self._replies, {}
                revoked, self._revoked = self._revoked, {}
                messages, beats = ray.get(self._mailbox.fetch.remote(replies, revoked, 0.5))
                self.fleet.planner.store.check_lock()
                with self._mutex:
                    for message in messages:
                        self._receive(message)
                    self._wake_idle()
                    self._check_nodes()
                    self.capacity.started = len(self._handles)
                    if time.monotonic() >= self._counted + LOOK_SECONDS:
                        self._check_cost()
                        now = time.monotonic()
                        self._share_cluster()
                        self._revoked = self.fleet.overdue(self._live(), now)
                    if time.monotonic() >= self._next_check:
                        self.capacity.check()
                        self._check_heartbeats(beats)
        except Exception as error:
            self.error = self.error or error

    def _receive(self, message: Message) -> None:
        match message:
            case Hello(worker, handle, node, host):
                self._nodes[worker] = f"{host} ({node[:6]})"
                if worker not in self._gone:
                    self._handles[worker] = pickle.loads(handle), node
            case Failed(worker, reason, starting):
                self._reasons[worker] = reason
                self._raised.add(worker)
                if starting and worker not in self._gone:
                    self._broken[worker] = time.monotonic()
                    self.fleet.health.leave_out(self._nodes.get(worker, worker), reason)
            case Waiting(worker, reason):
                node = self._nodes.get(worker, worker)
                self._news.say("store", time.monotonic(), "%s: %s", node, reason)
            case Confirmed():
                self._confirm(message)
            case Exchange():
                self._answer(message)

    def _check_nodes(self) -> None:
        """Name the nodes that are left out; end the sweep if no worker can start."""
        left_out = self.fleet.health.left_out
        for node in left_out.keys() - self._named:
            self._named.add(node)
            if self._works:
                LOG.warning("%s is left out: %s", node, left_out[node])
        if self._broken and not self._works and not self.error:
            waited = time.monotonic() - min(self._broken.values())
            if len(self._broken) >= self.capacity.live() or waited > START_SECONDS:
                worker = min(self._broken)
                node = self._nodes.get(worker, worker)
                self.error = UserError(f"no worker can start on {node}: {self._reasons[worker]}")

    def _check_cost(self) -> None:
        """End the sweep if its workers have cost as much as they may."""
        now, most = time.monotonic(), self.capacity.resources.hours
        self._cost += len(self._handles) * (now - self._counted)
        self._counted = now
        if most and self._cost >= 3600 * most and not self.fleet.done and not self.error:
            self.error = UserError(
                f"--max-cost {most:g}: the workers have used {self._cost / 3600:.3g} hours; the "
                f"same command continues, and `lmzoo rank {shlex.quote(str(self.store))}` ranks "
                "what has ended"
            )

    def _confirm(self, message: Confirmed) -> None:
        for run in message.runs:
            if isinstance(run, Released):
                self.fleet.released(message.worker, run.run)
            else:
                self.fleet.ended(message.worker, run)

    def _answer(self, exchange: Exchange) -> None:
        worker = exchange.worker
        self._numbers[worker] = exchange.number
        self._confirm(Confirmed(worker, exchange.confirmed))
        self._failed_starts = 0
        if exchange.reports:
            self._killed.pop(self._nodes.get(worker, ""), None)
        if worker in self._gone or STOPS.requested.is_set() or self.error:
            self._replies[worker] = exchange.number, None
            return
        now, node = time.monotonic(), self._nodes.get(worker, "")
        if worker in self._broken:
            node = self._nodes.get(worker, worker)
        else:
            self._works = True
        assignment = self.fleet.exchange(exchange, live=self._live(), now=now, node=node)
        if assignment is None:
            self._idle_since.setdefault(worker, now)
            self._replied_at[worker] = now
        else:
            self._reply(worker, assignment)

    def _wake_idle(self) -> None:
        """Reply to idle workers: with work, with nothing for now, or to let them go."""
        now, parked, dismissed = time.monotonic(), {*self.fleet.parked}, self.fleet.dismissed
        for worker in [*self.fleet.idle]:
            # It still has the runs whose ends are being written.
            leaving = self.fleet.workers[worker].leaving
            seconds = now - self._idle_since.get(worker, now)
            stays = leaving or worker in parked
            leaves = seconds > IDLE_SECONDS or worker in dismissed
            if self.finished or (leaves and not stays):
                self._gone.add(worker)
                self.fleet.gone(worker)
                self._replies[worker] = self._numbers[worker], None
            elif self.fleet.ready and worker not in parked and worker not in dismissed:
                memory = self.fleet.workers[worker].memory
                self._answer(Exchange(worker, self._numbers[worker], [*leaving], memory=memory))
            elif now - self._replied_at[worker] > REPLY_SECONDS:
                self._replied_at[worker] = now
                self._reply(worker, NOTHING)

    def _reply(self, worker: str, assignment: Assignment) -> None:
        if assignment.members:
            self._idle_since.pop(worker, None)
        self._replies[worker] = self._numbers[worker], assignment

    def _check_heartbeats(self, beats: dict[str, int]) -> None:
        self._next_check = time.monotonic() + HEARTBEAT_SECONDS
        hung = self.fleet.hung(time.monotonic())
        for worker, (handle, _) in [*self._handles.items()]:
            count = beats.get(worker, 0)
            last, missed = self._beats.get(worker, (-1, 0))
            missed = missed + 1 if count == last else 0
            self._beats[worker] = count, missed
            if missed:  # its process is stopped, not its run
                hung.pop(worker, None)
            if missed >= MAX_MISSED:
                seconds = MAX_MISSED * HEARTBEAT_SECONDS
                hung[worker] = f"a worker has sent no heartbeat for {seconds:.0f} s"
            if reason := hung.get(worker):
                LOG.warning("%s; the worker is killed", reason)
                self._reasons[worker] = reason
                ray.kill(handle)
                del self._handles[worker]
