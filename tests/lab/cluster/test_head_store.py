"""A worker that does not see the driver's folder reaches it through the driver's machine."""

from types import SimpleNamespace

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster import head_store as module
from lmzoo.lab.cluster.head_store import HeadStore, StoreServer, find_store, write_nonce
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import NONCE


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The server without Ray: calls are done at once."""
    monkeypatch.setattr(module.ray, "get", lambda value: value)
    local = StoreServer(str(tmp_path / "store"))
    methods = SimpleNamespace()
    for name in ("lock", "close", "call"):
        remote = SimpleNamespace(remote=getattr(local, name))
        setattr(methods, name, remote)
    yield methods
    for owner in list(local._locks):
        local.close(owner)


@pytest.fixture
def store(server, tmp_path):
    store = HeadStore(server, str(tmp_path / "store"), "w1")
    store.lock(".worker-w1")
    return store


def test_files_arrive_in_the_folder(store, tmp_path):
    run = store / "run"
    run.create("config.json", b"{}")
    with pytest.raises(FileExistsError):
        run.create("config.json", b"{}")
    run.append("lines", "first")
    run.append("lines", "second")
    for text in (b"one", b"two"):
        run.write("state", text, backup="before")
    there = tmp_path / "store" / "run"
    found = {file.name: file.read_bytes() for file in there.iterdir()}
    expected = {"config.json": b"{}", "lines": b"first\nsecond\n", "state": b"two"}
    assert found == expected | {"before": b"one"}
    run.delete("before")
    run.delete("never")
    assert run.read("state") == b"two"
    assert run.read("before") is None
    assert store.prefetch("x") == {"run"}


def test_a_worker_that_the_sweep_has_given_up_writes_nothing(store, server, tmp_path):
    run = store / "run"
    run.append("lines", "first")
    server.close.remote("w1")
    Store(tmp_path / "store").lock(".worker-w1").close()  # the lock is free
    with pytest.raises(UserError, match="lock of this worker was released"):
        run.append("lines", "late")
    with pytest.raises(UserError, match="lock of this worker was released"):
        run.write("lines", b"late")
    assert (tmp_path / "store/run/lines").read_bytes() == b"first\n"


@pytest.mark.parametrize("sees", ["the store", "an older sweep", "nothing"])
def test_the_store_is_opened_directly_only_where_it_is_the_same(sees, server, tmp_path):
    path = tmp_path / "store"
    # The driver writes a new number, which only who sees its folder can read.
    nonce = write_nonce(Store(path))
    if sees == "an older sweep":
        (path / NONCE).write_text("0123456789abcdef")
    elif sees == "nothing":
        (path / NONCE).unlink()
    found = find_store(str(path), nonce, server, "w1")
    if sees == "the store":
        assert type(found) is Store
        return
    assert type(found) is HeadStore
    with pytest.raises(UserError, match=r"\S+ does not see the store \S+store \("):
        find_store(str(path), nonce, None, "w1")


@pytest.mark.parametrize("released", [True, False])
def test_an_actor_that_was_started_again_takes_the_locks_that_were_not_released(released, tmp_path):
    first = StoreServer(str(tmp_path))
    first.lock("1", ".worker-1", 0.0)
    first.call("1", ("run",), "create", "config", b"{}")
    if released:
        first.close("1")
    else:
        first._locks.pop("1").forget()  # as the kernel does, when the process dies
    again = StoreServer(str(tmp_path))
    again.is_restarted = True
    if released:
        with pytest.raises(UserError, match="the lock of this worker was released"):
            again.call("1", ("run",), "append", "lines", "late")
        return
    again.call("1", ("run",), "create", "config", b"{}")  # repeated by Ray
    again.call("1", ("run",), "append", "lines", "one")
    assert (tmp_path / "run" / "lines").read_text() == "one\n"
    again.close("1")
    assert not (tmp_path / ".worker-1").exists()
