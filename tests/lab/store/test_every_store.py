"""What every store does, in a folder and in a bucket: files, locks, and what a lost lock allows."""

import fcntl
import threading

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store import s3
from lmzoo.lab.store.address import open_store

# moto's server does not close its sockets
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture(params=["folder", "bucket"])
def address(request, tmp_path):
    if request.param == "folder":
        return str(tmp_path / "store")
    return f"{request.getfixturevalue('bucket')}/a/b"


@pytest.fixture
def store(address):
    return open_store(address)


def writes(store):
    """Return calls that change a store."""
    return (
        lambda: store.append("records", "late"),
        lambda: store.write("state", b"late"),
        lambda: store.create("new", b"late"),
        lambda: store.delete("records"),
    )


def test_files_are_read_by_another_process(store, address):
    assert store.read("state") is None
    assert store.prefetch("lines") == set()
    for text in (b"zero", b"one", b"two"):
        store.write("state", text, backup="before")
    store.append("lines", "first")
    store.append("lines", "second")
    store.create("config", b"one")
    with pytest.raises(FileExistsError):
        store.create("config", b"two")
    (store / "run").write("config", b"")
    other = open_store(address)
    assert other.prefetch("config") == {"run"}
    assert [other.read(name) for name in ("state", "config")] == [b"two", b"one"]
    assert other.read("lines") == b"first\nsecond\n"
    assert other.read("before") == (None if address.startswith("s3") else b"one")
    store.delete("state")
    store.delete("never")
    assert other.read("state") is None


def test_one_of_many_gets_the_lock_and_the_others_its_name(store, address):
    locks = []
    refused = []

    def acquire():
        try:
            locks.append(open_store(address).lock(".driver"))
        except UserError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=acquire) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(locks) == 1
    assert len(refused) == 5
    with pytest.raises(UserError, match=r" is in use by process \d+ on \S+; wait"):
        store.lock(".driver")
    locks[0].close()
    locks[0].close()
    open_store(address).lock(".driver").close()


def test_an_owner_that_lost_its_lock_to_another_process_writes_nothing(address, monkeypatch):
    first = open_store(address)
    second = open_store(address)
    lock = first.lock(".lock")
    run = first / "study" / "run"
    run.append("records", "one")
    if address.startswith("s3"):
        with monkeypatch.context() as patch:
            patch.setattr(s3, "EXPIRY", -1.0)  # every lock is expired
            other = second.lock(".lock")
        lock._renew()
    else:
        fcntl.flock(lock._file, fcntl.LOCK_UN)  # as a file server does that hears nothing
        monkeypatch.setattr("lmzoo.lab.store.local.process_name", lambda: "process 7 on elsewhere")
        other = second.lock(".lock")
    for write in writes(run):
        with pytest.raises(UserError, match=r"lock was lost|locked by another process, process 7"):
            write()
    lock.close()  # does not release the lock of the second
    with pytest.raises(UserError, match="in use"):
        open_store(address).lock(".lock")
    (second / "study" / "run").append("records", "two")
    assert run.read("records") == b"one\ntwo\n"
    other.close()


def test_clear_locks_waits_for_living_workers_and_deletes_those_of_dead_ones(
    store, address, monkeypatch
):
    monkeypatch.setattr(s3, "EXPIRY", 2.0)
    late = open_store(address)
    dead = late.lock(".worker-0")
    alive = open_store(address).lock(".worker-1")
    driver = store.lock(".driver")
    (store / "run").write(".worker-7", b"a file of a run")
    if address.startswith("s3"):
        dead._released.set()  # its process is gone and renews no more
    else:
        fcntl.flock(dead._file, fcntl.LOCK_UN)
    with pytest.raises(UserError, match="in use by process"):
        store.clear_locks(".worker-*", 0.3)
    timer = threading.Timer(0.5, alive.close)
    timer.start()
    store.clear_locks(".worker-*", 60.0)
    timer.join()
    assert [store.read(f".worker-{i}") for i in range(2)] == [None, None]
    assert store.read(".driver")
    assert (store / "run").read(".worker-7")
    with pytest.raises(UserError, match=r"lock was lost|by another process, which has ended"):
        (late / "run").append("records", "too late")
    driver.close()
