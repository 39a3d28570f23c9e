"""The driver's store, reached through Ray by workers that do not see its folder or bucket.

An actor on the driver's machine opens the store and does what a worker asks: so no folder has to be
shared. It has the lock of the worker. When the sweep regards the worker as gone, it releases that
lock, and the actor refuses what the worker may still send: nothing is overwritten.

If the actor dies, Ray starts it again. The file of a lock that was not released is still there, so
the new actor takes it again when its worker asks for something.
"""

import os
import secrets
import threading
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lmzoo.base.errors import UserError
from lmzoo.base.plain import Texts
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.local import Content, Lock, Store, pieces, temporary_folder
from lmzoo.lab.store.records import NONCE, WORKER_LOCK

CALLS = 16
"""Operations at the same time."""
PATIENCE = 60.0
"""Seconds after which a lock in a bucket, whose owner has died, has expired."""


class StoreServer:
    """Does the operations of workers on the store of the driver."""

    def __init__(self, address: str):
        self._address = address
        self._stores = dict[str, Store]()
        self._locks = dict[str, Lock]()
        self._mutex = threading.Lock()
        self.is_restarted = False
        if ray.is_initialized():
            self.is_restarted = ray.get_runtime_context().was_current_actor_reconstructed

    def lock(self, owner: str, name: str, patience: float):
        """Lock the store for a worker."""
        store = open_store(self._address)
        self._locks[owner] = store.lock(name, patience)
        self._stores[owner] = store

    def close(self, owner: str):
        """Release the lock of a worker, which can write nothing more."""
        self._stores.pop(owner, None)
        lock = self._locks.pop(owner, None)
        if lock:
            lock.close()

    def call(self, owner: str, folders: Texts, method: str, *values: Any, **options: Any) -> Any:
        """Return what a method of the store, or of a folder in it, returns; it needs a lock."""
        # Its lock outlives a restart of this actor.
        store = self._stores.get(owner) or self._taken_again(owner)
        if store is None:
            raise UserError(
                f"{self._address}: the lock of this worker was released, because it did not "
                "respond; its runs continue on another worker"
            )
        for folder in folders:
            store /= folder
        try:
            return getattr(store, method)(*values, **options)
        except FileExistsError:
            if not self.is_restarted or store.read(values[0]) != values[1]:
                raise  # else the actor died after it had created the file, and Ray repeats the call

    def _taken_again(self, owner: str) -> Store | None:
        """Take the lock that the actor before this one had for a worker and did not release."""
        name = WORKER_LOCK.format(owner)
        # Several calls of a worker may arrive at the same time; one takes the lock.
        with self._mutex:
            if owner not in self._stores and self.is_restarted:
                # A lock that was released has no file: its worker is regarded as gone.
                if open_store(self._address).read(name) is None:
                    return None
                self.lock(owner, name, PATIENCE)
        return self._stores.get(owner)


def _remote(method: str) -> Any:
    """Return a method that the server does."""

    def call(self: "HeadStore", *values: Any, **options: Any) -> Any:
        call = self._server.call.remote
        return ray.get(call(self._owner, self._names, method, *values, **options))

    return call


class HeadStore(Store):
    """The store of the driver; `path` is a temporary folder of this process."""

    def __init__(self, server: Any, address: str, owner: str, parent: "HeadStore | None" = None):
        self._server = server
        self._address = address
        self._owner = owner
        self._names: Texts = ()
        if parent:
            super().__init__(parent.path, parent)
        else:
            super().__init__(temporary_folder("scratch"))

    def __truediv__(self, name: str) -> "HeadStore":
        child = HeadStore(self._server, self._address, self._owner, self)
        child._names = self._names + (name,)
        child.path = self.path / name
        child.path.mkdir(exist_ok=True)  # for what commands print
        return child

    def __str__(self) -> str:
        return "/".join((self._address,) + self._names)

    @property
    def address(self) -> str:
        return str(self)

    read = _remote("read")
    prefetch = _remote("prefetch")
    create = _remote("create")
    append = _remote("append")
    delete = _remote("delete")
    take_over = _remote("take_over")

    def write(self, name: str, data: Content, backup: str = ""):
        # A memoryview cannot be sent to another process.
        whole = b"".join(pieces(data))
        _remote("write")(self, name, whole, backup)

    def overwrite(self, name: str, data: Content):
        self.write(name, data)

    def lock(self, name: str, patience: float = 0.0) -> Any:
        """Let the server take the lock of this worker, and check it."""
        ray.get(self._server.lock.remote(self._owner, name, patience))
        return self

    def close(self):
        ray.get(self._server.close.remote(self._owner))


def start_server(store: Store) -> Any:
    """Start the server on this machine and return its handle."""
    node = ray.get_runtime_context().get_node_id()
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    server: Any = ray.remote(StoreServer)
    actor = server.options(
        # It would take a CPU from the workers.
        num_cpus=0,
        max_concurrency=CALLS,
        scheduling_strategy=here,
        # Ray starts it again whenever it dies.
        max_restarts=-1,
        max_task_retries=-1,
    )
    return actor.remote(store.address)


def write_nonce(store: Store) -> str:
    """Write a number that proves, where it is read, that this is the store; return it."""
    nonce = secrets.token_hex(8)
    store.write(NONCE, nonce.encode())
    return nonce


def find_store(address: str, nonce: str, server: Any, worker: str) -> Store:
    """Return the store of the driver: by its address if this machine sees it, else through Ray."""
    reason = "the folder has no file of this sweep"
    try:
        store = open_store(address)
        if store.read(NONCE) == nonce.encode():
            return store
    except (OSError, UserError) as error:
        reason = str(error)
    if server is None:
        raise UserError(f"{os.uname().nodename} does not see the store {address} ({reason})")
    return HeadStore(server, address, worker)
