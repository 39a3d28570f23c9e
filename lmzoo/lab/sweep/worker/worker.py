"""The worker: an actor that Ray places. It trains the runs that the driver assigns to it.

A worker has one share of a device, for as long as the sweep can use it. The driver calls `work`
for each epoch, and always waits for `news`, whose answers are the heartbeats of the worker. It
keeps no state: the run folders hold everything.

A worker that is not called for `RELEASE_SECONDS`, because the network is down, closes its runs
and releases its lock, so that a worker on another node can continue them.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import ray

from lmzoo.base.errors import UserError, describe_error
from lmzoo.base.version import check_software
from lmzoo.lab.store.records import WORKER_LOCK, write_traceback
from lmzoo.lab.store.user_code import UserCode, import_shipped
from lmzoo.lab.store.writer import LOG as STORE_LOG
from lmzoo.lab.study.trainable import open_door
from lmzoo.lab.sweep.messages import Assignment, Exchange, Failed, News, Report, Started

if TYPE_CHECKING:
    from lmzoo.lab.store.local import Lock
    from lmzoo.lab.sweep.worker.pack import Pack

CALLS = 3
"""Calls that a worker serves at the same time: an epoch, the news, the end."""
HEARTBEAT_SECONDS = 10.0
"""Time between two checks of the workers; one without news says so twice in it."""
RELEASE_SECONDS = 30.0
"""Time without a call after which a worker closes its runs."""
LOCK_SECONDS = 60.0
"""How long a worker waits for its own lock after it released it."""


class Worker:
    """Trains assigned runs. Ray may repeat a call whose answer was lost."""

    def __init__(self, name: str):
        self.name = name
        self._thread = ThreadPoolExecutor(1)
        """Does what concerns the runs: settings of torch belong to a thread."""
        self._pack: Pack | None = None
        """None if the worker could not start."""
        self._lock: Lock | None = None
        self._memory = 0
        self._last: tuple[int, Exchange | Failed] | None = None
        """Number and answer of the last step."""
        self._silence = threading.Timer(0, self._release)
        self._news = list[News]()
        """Those that the driver does not have yet."""
        self._told = 0
        """The number of all news."""
        self._arrived = threading.Condition()
        node = ray.get_runtime_context().get_node_id()
        self._tell(Started(node, os.uname().nodename))

    def start(self, *given: Any, **facts: Any) -> Exchange | Failed:
        """Open the store and set up the device; see `_start`."""
        return self._thread.submit(self._start, *given, **facts).result()

    def _start(
        self,
        corpus: Any,
        server: Any = None,
        *,
        store: str,
        nonce: str,
        code: UserCode | None = None,
        threads: int = 1,
        gpu: float = 0.0,
        curves: bool = True,
        software: Mapping[str, str] | None = None,
    ) -> Exchange | Failed:
        """`gpu` is the worker's share of a GPU; 0: the CPU. `curves` are those for TensorBoard.

        `software` is that of the driver. A worker that cannot train says so and stays without work,
        so that Ray starts no other one in its place.
        """
        reporter = logging.Handler(logging.WARNING)
        reporter.emit = lambda record: self._tell(record.getMessage())
        STORE_LOG.addHandler(reporter)
        try:
            check_software(software or {})
            if code:
                import_shipped(code)  # before `lmzoo.zoo`, which imports installed plugins
            from lmzoo.lab.cluster.head_store import find_store
            from lmzoo.lab.sweep.worker.pack import Pack

            self._store = find_store(store, nonce, server, self.name)
            trainer = open_door().make_trainer(corpus, threads, gpu)
            self._memory = trainer.memory
            name = WORKER_LOCK.format(self.name)
            self._lock = self._store.lock(name)
            self._pack = Pack(self._store, trainer, self._tell, self.name, curves=curves)
        except Exception as error:
            return Failed(_describe(error))
        return self._report([])

    def work(self, number: int, assignment: Assignment) -> Exchange | Failed:
        """Do what an assignment says, and report; steps are numbered."""
        return self._thread.submit(self._work, number, assignment).result()

    def _work(self, number: int, assignment: Assignment) -> Exchange | Failed:
        # Ray repeats a call whose answer was lost: each step is done once.
        if self._last is None or self._last[0] != number:
            self._silence.cancel()
            self._last = number, self._train(assignment)
            # Not called again, it gives its runs to the others.
            submit = self._thread.submit
            self._silence = threading.Timer(RELEASE_SECONDS, submit, [self._release])
            self._silence.daemon = True
            self._silence.start()
        return self._last[1]

    def _train(self, assignment: Assignment) -> Exchange | Failed:
        reports = list[Report]()
        try:
            if self._pack is not None and self._lock is None:
                # The assignment assumes that the runs are open, so the next one opens them.
                self._lock = self._store.lock(WORKER_LOCK.format(self.name), LOCK_SECONDS)
            elif self._pack is not None:
                reports = self._pack.apply(assignment)
                members = assignment.members
                reports += self._pack.train_epoch(members, packed=assignment.packed)
                if not assignment.members:
                    self._pack.writer.wait()
        except Exception as error:
            self._write_traceback(error)
            with contextlib.suppress(Exception):  # the store may be the cause
                self._release()
            return Failed(_describe(error))
        return self._report(reports)

    def _report(self, reports: Sequence[Report]) -> Exchange:
        return Exchange(self.name, self._opened(), reports, self._memory, self._told)

    def _opened(self) -> list[str]:
        if self._pack is None:
            return []
        return self._pack.opened

    def news(self, received: int) -> Sequence[News]:
        """Return the news after the first `received`, or nothing after some seconds."""
        with self._arrived:
            new = self._told - received  # the driver has the others
            del self._news[: len(self._news) - new]
            self._arrived.wait_for(lambda: self._news, HEARTBEAT_SECONDS / 2)
            return list(self._news)

    def close(self):
        """Finish all writes and release the lock."""
        self._silence.cancel()
        self._thread.submit(self._release).result()

    def _release(self):
        if self._pack and self._lock:
            try:
                self._pack.suspend()
            finally:
                self._lock.close()
                self._lock = None

    def _tell(self, news: News):
        with self._arrived:
            self._news.append(news)
            self._told += 1
            self._arrived.notify_all()

    def _write_traceback(self, error: Exception):
        for run_id in self._opened():
            with contextlib.suppress(OSError, UserError):  # the store may be the cause
                write_traceback(self._store / run_id, error)


def _describe(error: Exception) -> str:
    if isinstance(error, UserError):
        return str(error)
    return describe_error(error)
