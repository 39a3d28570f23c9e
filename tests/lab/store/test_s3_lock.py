"""The lock of a bucket has one owner, who stops writing before another process may take it."""

import threading
import time

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store import s3
from lmzoo.lab.store.local import open_store
from tests.lab.sweep.processes import wait_until

# moto's server does not close its sockets
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def store(bucket):
    return open_store(f"{bucket}/a/b")


def fail(*_, **__):
    raise OSError("away")


def test_second_process_is_refused_with_the_name_of_the_owner(store):
    lock = store.lock(".driver")
    with pytest.raises(UserError, match=r"a/b is in use by process \d+ on \S+; wait"):
        open_store(str(store)).lock(".driver")
    lock.close()
    open_store(str(store)).lock(".driver").close()


def test_one_of_many_gets_the_lock(store):
    locks, refused = [], []

    def acquire():
        try:
            locks.append(open_store(str(store)).lock(".lock"))
        except UserError:
            refused.append(1)

    threads = [threading.Thread(target=acquire) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(locks), len(refused)) == (1, 5)
    locks[0].close()


def test_lock_is_renewed_until_it_is_closed(store, monkeypatch):
    monkeypatch.setattr(s3, "EXPIRY", 1.0)
    lock = store.lock(".lock")
    wait_until(lambda: lock._renewals >= 4)
    lock.close()
    assert store.read(".lock") is None


def test_owner_stops_writing_when_another_process_takes_the_expired_lock(store, monkeypatch):
    first, second = open_store(str(store)), open_store(str(store))
    first_lock = first.lock(".lock")
    first.write("state", b"first")
    with monkeypatch.context() as patch:
        patch.setattr(s3, "EXPIRY", -1.0)  # every lock is expired
        second_lock = second.lock(".lock")
    first_lock._renew()
    with pytest.raises(UserError, match="the lock was lost"):
        first.write("state", b"too late")
    with pytest.raises(UserError, match="the lock was lost"):
        first.append("lines", "too late")
    first_lock.close()  # does not release the lock of the second
    second.write("state", b"second")
    assert store.read("state") == b"second"
    with pytest.raises(UserError, match="in use"):
        store.lock(".lock")
    second_lock.close()


def test_owner_that_cannot_renew_stops_writing_before_the_lock_expires(store, monkeypatch):
    lock = store.lock(".lock")
    with monkeypatch.context() as patch:
        patch.setattr(lock._bucket, "put", fail)
        lock._renew()
    store.write("state", b"in time")
    lock._renewed_at -= 0.85 * s3.EXPIRY
    with pytest.raises(UserError, match="the lock was lost"):
        store.write("state", b"too late")
    lock.close()
    assert store.read(".lock"), "the lock may belong to another process"


def test_a_lock_protects_the_stores_of_subfolders(store):
    lock = store.lock(".worker-1")
    child = store / "study" / "run"
    child.append("records", "one")
    lock._renewed_at -= 0.85 * s3.EXPIRY
    for write in (
        lambda: child.append("records", "two"),
        lambda: child.write("state", b""),
        lambda: child.create("new", b""),
        lambda: child.delete("records"),
    ):
        with pytest.raises(UserError, match="the lock was lost"):
            write()
    assert child.read("records") == b"one\n"
    lock.close()


def test_clear_locks_waits_for_living_workers_and_deletes_the_locks_of_dead_ones(
    store, monkeypatch
):
    monkeypatch.setattr(s3, "EXPIRY", 2.0)
    dead, alive = (open_store(str(store)).lock(f".worker-{i}") for i in range(2))
    driver = store.lock(".driver")
    (store / "run").write(".worker-7", b"a file of a run")
    dead._released.set()  # its process is gone and renews no more
    with pytest.raises(UserError, match="in use by process"):
        store.clear_locks(".worker-*", 0.3)
    timer = threading.Timer(1.0, alive.close)
    timer.start()
    store.clear_locks(".worker-*", 60.0)
    timer.join()
    driver.close()
    assert store.names() == ["run/.worker-7"]


def test_time_in_which_the_machine_is_suspended_counts(store, monkeypatch):
    lock, clock_gettime = store.lock(".driver"), time.clock_gettime

    def after_a_suspend(clock):
        return clock_gettime(clock) + s3.EXPIRY * (clock == time.CLOCK_BOOTTIME)

    monkeypatch.setattr(s3.time, "clock_gettime", after_a_suspend)
    with pytest.raises(UserError, match="could not be renewed in time"):
        lock.check()
    lock.close()
