"""The worker: an actor that Ray places. It trains the runs that the sweep assigns to it.

A worker has one share of a device, for as long as the sweep can use it. After every epoch it
reports to the sweep and receives its next assignment (`fleet.py`). It keeps no state: the run
folders hold everything.

A worker that has had no reply for `RELEASE_SECONDS`, because the network is down, closes its runs
and releases its lock, so that a worker on another node can continue them.
"""

import contextlib
import functools
import itertools
import logging
import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import GetTimeoutError

from lmzoo.base.errors import UserError, describe_error
from lmzoo.base.version import check_software
from lmzoo.lab.store.records import TRACEBACK, WORKER_LOCK
from lmzoo.lab.store.user_code import UserCode, import_shipped
from lmzoo.lab.store.writer import LOG as STORE_LOG
from lmzoo.lab.study.door import open_door
from lmzoo.lab.sweep.messages import (
    Assignment,
    Confirmed,
    Ended,
    Exchange,
    Failed,
    Hello,
    Released,
    Report,
    Waiting,
)

if TYPE_CHECKING:
    from lmzoo.lab.sweep.worker.pack import Pack

HEARTBEAT_SECONDS = 10.0
"""Time between two heartbeats of a worker."""
RELEASE_SECONDS = 30.0
"""Time without a reply after which a worker closes its runs."""
LOCK_SECONDS = 60.0
"""How long a worker waits for its own lock after it released it."""


class _Reporter(logging.Handler):
    """Sends the warnings of the store to the sweep."""

    def __init__(self, worker: str, mailbox: Any) -> None:
        super().__init__(logging.WARNING)
        self._worker, self._mailbox = worker, mailbox

    def emit(self, record: logging.LogRecord) -> None:
        self._mailbox.post.remote(Waiting(self._worker, record.getMessage()))


class Worker:
    """Trains assigned runs until the sweep has no more use for it."""

    def __init__(
        self,
        name: str,
        mailbox: Any,
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
    ) -> None:
        """Open the store and set up the device; torch is imported after the heartbeat starts.

        `gpu` is the worker's share of a GPU; 0: the CPU. `curves` are those for TensorBoard.
        `software` is that of the driver.

        A worker that cannot start says so and stays without work, so that Ray starts no other one
        in its place.
        """
        self.name, self._mailbox = name, mailbox
        self._number = 0
        """Number of the last exchange."""
        self._confirmed: list[Ended | Released] = []
        """Ends and releases that the sweep has not acknowledged by a reply."""
        self._pack: Pack | None = None
        """None if the worker could not start."""
        self._memory = 0
        context = ray.get_runtime_context()
        handle = pickle.dumps(context.current_actor)
        host = os.uname().nodename
        message = Hello(self.name, handle, context.get_node_id(), host)
        hello = functools.partial(self._mailbox.post.remote, message)
        threading.Thread(target=self._send_heartbeats, args=(hello,), daemon=True).start()
        STORE_LOG.addHandler(_Reporter(self.name, self._mailbox))
        try:
            check_software(software or {})
            if code:
                import_shipped(code)  # before `lmzoo.zoo`, which imports installed plugins
            from lmzoo.lab.cluster.head_store import find_store

            self._store = find_store(store, nonce, server, self.name)
            self._set_up_training(corpus, threads, gpu, curves=curves)
        except Exception as error:
            self._fail(error, starting=True)

    def run(self) -> None:
        """Train until the sweep has no more use for this worker."""
        try:
            self.train()
        finally:
            self.close()

    def train(self) -> None:
        """Train all assignments, one epoch at a time."""
        reports: list[Report] = []
        try:
            while (assignment := self._exchange(reports)) is not None:
                if self._pack is None:
                    continue
                reports = self._pack.apply(assignment)
                reports += self._pack.train_epoch(assignment.members, packed=assignment.packed)
                if not assignment.members:
                    self._pack.writer.wait()
        except Exception as error:
            self._write_traceback(error)
            self._fail(error)
            raise

    def close(self) -> None:
        """Finish all writes and release the lock."""
        if self._pack:
            self._pack.suspend()
            self._lock.close()

    def _set_up_training(
        self, corpus: Any, threads: int, gpu: float, *, curves: bool = True
    ) -> None:
        from lmzoo.lab.sweep.worker.pack import Pack

        trainer = open_door().make_trainer(corpus, threads, gpu)
        self._memory = trainer.memory
        self._lock = self._store.lock(WORKER_LOCK.format(self.name))
        self._pack = Pack(self._store, trainer, self._confirm, self.name, curves=curves)

    def _exchange(self, reports: list[Report]) -> Assignment | None:
        """Report, and return the next assignment; None if the sweep has no use for this worker."""
        opened = self._pack.opened if self._pack else []
        confirmed = len(self._confirmed)
        self._number += 1
        reply = self._mailbox.exchange.remote(
            Exchange(
                *(self.name, self._number, opened, reports),
                confirmed=self._confirmed[:confirmed],
                memory=self._memory,
            )
        )
        try:
            assignment: Any = ray.get(reply, timeout=RELEASE_SECONDS)
        except GetTimeoutError:
            if self._pack is None:
                return ray.get(reply)
            self._pack.suspend()
            self._lock.close()
            ray.get(reply)
            self._lock = self._store.lock(WORKER_LOCK.format(self.name), LOCK_SECONDS)
            # The reply assumes that the runs are open, so it is requested again.
            return self._exchange(reports)
        del self._confirmed[:confirmed]
        return assignment

    def _confirm(self, run: Ended | Released) -> None:
        """Inform the sweep at once, and again with the next report, should the message be lost."""
        self._confirmed.append(run)
        self._mailbox.post.remote(Confirmed(self.name, [run]))

    def _fail(self, error: Exception, *, starting: bool = False) -> None:
        """Inform the sweep of the error that ends this worker, or with which it cannot start."""
        text = str(error) if isinstance(error, UserError) else describe_error(error)
        self._mailbox.post.remote(Failed(self.name, text, starting))

    def _write_traceback(self, error: Exception) -> None:
        """Write the traceback into the folders of the open runs, any of which may have failed."""
        text = "".join(traceback.format_exception(error)).encode()
        for run_id in self._pack.opened if self._pack else ():
            with contextlib.suppress(OSError, UserError):  # the store may be the cause
                (self._store / run_id).write(TRACEBACK, text)

    def _send_heartbeats(self, hello: Callable[[], object]) -> None:
        for _ in itertools.count():
            count, revoked = ray.get(self._mailbox.beat.remote(self.name))
            if count == 1:  # the first one of all, or since the mailbox was killed
                hello()
            if revoked and self._pack:
                with contextlib.suppress(Exception):  # the main thread meets it, too
                    self._pack.revoke(revoked)
            time.sleep(HEARTBEAT_SECONDS)
