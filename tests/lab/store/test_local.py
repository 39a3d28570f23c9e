"""A folder that is full, forbidden or damaged loses nothing and has no incomplete files."""

import fcntl
import subprocess
import sys

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store import writer as retry_module
from lmzoo.lab.store.local import Store
from tests.lab.store.small_disk import fill_disk, small_disk


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_store_below_a_file_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "x")
    for operation in (
        lambda: store.read("state"),
        lambda: store.write("state", b""),
        lambda: store.append("lines", "one"),
        lambda: store.delete("state"),
        lambda: store.lock(".lock"),
    ):
        with pytest.raises(UserError, match=r"file/x.*: Not a directory; fix this"):
            operation()


def test_write_keeps_the_replaced_file_as_backup(store):
    for text in (b"one", b"two", b"three"):
        store.write("state", text, backup="before")
    assert (store.read("state"), store.read("before")) == (b"three", b"two")
    store.delete("state", "before", "never")
    assert (store.read("state"), store.read("before")) == (None, None)


@pytest.mark.parametrize("before", ["", "one\n"])
def test_append_removes_an_incomplete_line(store, before):
    for torn in ("{", '{"epoch": 3', "x" * 70_000):
        store.path.mkdir(exist_ok=True)
        (store.path / "lines").write_text(before + torn)
        store.append("lines", "two")
        assert store.read("lines") == f"{before}two\n".encode()


def test_full_disk_damages_nothing_and_writing_continues_when_there_is_space(disk):
    store = Store(disk)
    store.write("state", b"s" * 100_000)
    store.append("lines", "first")
    filler = disk / "filler"
    fill_disk(filler)

    pauses = []

    def check_and_free_space(*_):
        assert {p.name for p in disk.iterdir()} - {"filler"} == {"state", "lines"}
        assert store.read("state") == b"s" * 100_000
        assert store.read("lines") == b"first\n"
        filler.unlink()
        pauses.append(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry_module.time, "sleep", check_and_free_space)
        store.write("state", b"t" * 100_000)
    assert pauses == [1]
    fill_disk(filler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry_module.time, "sleep", lambda _: filler.unlink())
        store.append("lines", "x" * 50_000)
    assert store.read("state") == b"t" * 100_000
    assert store.read("lines") == b"first\n" + b"x" * 50_000 + b"\n"


@pytest.fixture
def disk(tmp_path):
    try:
        with small_disk(tmp_path / "disk", 1) as path:
            yield path
    except PermissionError as error:
        pytest.skip(f"{error}; the test needs root")


def test_lock_names_its_owner_and_is_released_when_the_owner_is_killed(store):
    code = (
        "import sys, time; from pathlib import Path; from lmzoo.lab.store.local import Store\n"
        "lock = Store(Path(sys.argv[1])).lock('.lock'); print('locked', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(store.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(UserError, match=rf"is in use by process {process.pid} on \S+; wait"):
        store.lock(".lock")
    process.kill()
    process.communicate()
    store.lock(".lock", patience=5.0).close()


def test_process_that_lost_its_lock_does_not_write(store, monkeypatch):
    """A file server released the lock and another process took it."""
    lock = store.lock(".lock")
    store.append("records", "one")
    fcntl.flock(lock._file, fcntl.LOCK_UN)
    other = Store(store.path)
    monkeypatch.setattr("lmzoo.lab.store.local.process_name", lambda: "process 7 on elsewhere")
    other_lock = other.lock(".lock")
    other.append("records", "two")
    for write in (lambda: store.append("records", "three"), lambda: store.write("state", b"")):
        with pytest.raises(UserError, match="locked by another process, process 7 on elsewhere"):
            write()
    other.append("records", "four")
    assert store.read("records") == b"one\ntwo\nfour\n"
    assert store.read("state") is None
    other_lock.close()
    lock.close()
