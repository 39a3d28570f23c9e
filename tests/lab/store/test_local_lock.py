"""The lock of a folder has one owner, protects subfolders, and leaves no file."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store.local import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_close_deletes_the_lock_file_and_may_be_repeated(store):
    lock = store.lock(".worker-1")
    assert (store.path / ".worker-1").read_text().startswith("process ")
    lock.close()
    lock.close()
    assert not list(store.path.iterdir())


def test_a_file_deleted_between_opening_and_locking_is_not_the_lock(store, monkeypatch):
    first = store.lock(".lock")
    flock, others = fcntl.flock, []

    def close_first(file, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        first.close()  # deletes the file that the second process has opened
        others.append(Store(store.path).lock(".lock"))
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", close_first)
    with pytest.raises(UserError, match="in use"):
        Store(store.path).lock(".lock")
    others[0].close()


def test_a_file_system_without_locks_is_refused_in_one_line(store, monkeypatch):
    for number in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):

        def refuse(*_, number=number):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", refuse)
        with pytest.raises(UserError, match=r"no file locks \(.*\); mount") as caught:
            store.lock(".lock", patience=60.0)
        assert "\n" not in str(caught.value)


def test_a_lock_protects_the_stores_of_subfolders(store):
    child = store / "study" / "run"
    child.append("records", "before the lock")
    lock = store.lock(".worker-1")
    child.append("records", "one")
    (store.path / ".worker-1").write_text("process 7 on elsewhere")
    for write in (
        lambda: child.append("records", "two"),
        lambda: child.write("state", b""),
        lambda: child.create("new", b""),
        lambda: child.delete("records"),
    ):
        with pytest.raises(UserError, match="locked by another process, process 7 on elsewhere"):
            write()
    assert child.read("records") == b"before the lock\none\n"
    lock.close()
    assert (store.path / ".worker-1").exists(), "it belongs to the other process"


def test_an_owner_whose_lock_was_cleared_does_not_write(store):
    """A file server released the lock of a suspended worker, and a new sweep cleared it."""
    lock = store.lock(".worker-1")
    fcntl.flock(lock._file, fcntl.LOCK_UN)
    Store(store.path).clear_locks(".worker-*", 0.0)
    assert not list(store.path.iterdir())
    with pytest.raises(UserError, match="locked by another process, which has ended"):
        (store / "run").append("records", "too late")
    lock.close()


def test_clear_locks_waits_for_living_workers_and_deletes_the_files_of_dead_ones(store):
    code = (
        "import sys, time; from pathlib import Path; from lmzoo.lab.store.local import Store\n"
        "lock = Store(Path(sys.argv[1])).lock('.worker-2'); print('locked', flush=True)\n"
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(store.path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    (store.path / ".worker-1").write_text("process 1 on elsewhere")
    (store.path / ".driver").write_text("process 1 on elsewhere")
    with pytest.raises(UserError, match=rf"in use by process {process.pid} on"):
        store.clear_locks(".worker-*", 0.3)
    threading.Timer(0.3, process.kill).start()
    store.clear_locks(".worker-*", 60.0)
    process.communicate()
    assert [file.name for file in store.path.iterdir()] == [".driver"]
    store.clear_locks(".worker-*", 0.0)


def test_create_refuses_to_replace_a_file(store):
    store.create("config", b"one")
    with pytest.raises(FileExistsError):
        store.create("config", b"two")
    assert store.read("config") == b"one"


def test_prefetch_returns_the_subfolders(store):
    assert store.prefetch("records") == set()
    (store / "run").write("config", b"")
    store.write("study.json", b"")
    assert store.prefetch("records") == {"run"}


def test_a_forked_child_does_not_keep_the_lock_of_a_process_that_died(store, tmp_path):
    """The child of a user's function lives on after its worker was killed."""
    script = tmp_path / "owner.py"
    script.write_text(
        "import multiprocessing, os, signal, time\n"
        "from lmzoo.lab.store.local import open_store\n"
        f"lock = open_store({str(store)!r}).lock('.lock')\n"
        "child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(30,))\n"
        "child.start()\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as owner:
        child = int(owner.stdout.readline())
    try:
        assert owner.returncode == -signal.SIGKILL
        store.lock(".lock", patience=2).close()
    finally:
        os.kill(child, signal.SIGKILL)
