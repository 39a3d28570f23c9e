"""A full, forbidden or damaged folder loses nothing; temporary ones end with their process."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from unittest import mock

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store import writer as retry_module
from lmzoo.lab.store.local import (
    TEMPORARY,
    UNFINISHED,
    Store,
    delete_abandoned,
    is_alive,
    temporary_folder,
)
from tests.lab.store.small_disk import fill_disk, small_disk


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_a_process_lives_until_it_has_ended():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_alive(process.pid)
    process.communicate(b"\n")
    assert not is_alive(process.pid)


def test_a_process_of_another_account_lives(monkeypatch):
    monkeypatch.setattr("os.kill", mock.Mock(side_effect=PermissionError))
    assert is_alive(1)


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


def test_a_file_deleted_between_opening_and_locking_is_not_the_lock(store, monkeypatch):
    first = store.lock(".lock")
    flock = fcntl.flock
    others = []

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


def test_a_forked_child_does_not_keep_the_lock_of_a_process_that_died(store, tmp_path):
    """The child of a user's function lives on after its worker was killed."""
    script = tmp_path / "owner.py"
    script.write_text(
        "import multiprocessing, os, signal, time\n"
        "from lmzoo.lab.store.address import open_store\n"
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


MAKE = "from lmzoo.lab.store.local import temporary_folder as make; print(make('x'), flush=True); "


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def process(end: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", MAKE + end]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("end", "left"),
    [("pass", 0), ("import os; os._exit(1)", 1), ("import os; os.kill(os.getpid(), 9)", 1),
     ("import os; os.fork() or exit(); os.wait()", 0),
     ("import lmzoo.lab.store.local as l, os; l.delete_temporary(); os._exit(1)", 0)],
)  # fmt: skip
def test_what_a_killed_process_leaves_is_deleted_by_the_next_one(tmp_path, end, left):
    with process(end) as ended:
        ended.communicate()
    assert len([*tmp_path.iterdir()]) == left
    folder = temporary_folder("y")
    assert [*tmp_path.iterdir()] == [folder]


def test_the_folder_of_a_living_process_and_files_of_others_stay(tmp_path):
    others = tmp_path / f"{TEMPORARY}file", tmp_path / f"{TEMPORARY}link", tmp_path / "other"
    others[0].touch()
    others[1].symlink_to(tmp_path / "other")
    (others[2] / "data").mkdir(parents=True)
    with process("input()") as living:
        name = living.stdout.readline().strip()
        delete_abandoned()
        assert {*tmp_path.iterdir()} == {*others, tmp_path / name}
        assert [*others[2].iterdir()]
        living.communicate("\n")


@pytest.mark.parametrize("action", ["append", "overwrite", "write", "read", "lock", "folder"])
def test_a_link_or_a_pipe_in_a_shared_store_leads_nowhere(action, tmp_path):
    """Whoever can write into the store plants them; a file of the account outside stays."""
    store = Store(tmp_path / "study") / "run"
    outside = tmp_path / "bashrc"
    outside.write_text("mine\n")
    store.path.mkdir(parents=True)
    if action == "lock":
        (store.path / ".lock").symlink_to(outside)
        with pytest.raises(UserError, match="symbolic links"):
            store.lock(".lock")
    elif action == "folder":
        (tmp_path / "docker").mkdir()
        store.path.rmdir()
        store.path.symlink_to(tmp_path / "docker")
        for write in ("write", "overwrite", "create"):
            with pytest.raises(UserError, match="link out of"):
                getattr(store, write)("config.json", b"theirs")
        with pytest.raises(UserError, match="link out of"):
            store.append("config.json", "theirs")
        assert not [*(tmp_path / "docker").iterdir()]
    if action in ("lock", "folder"):
        assert outside.read_text() == "mine\n"
        return
    if action == "read":
        os.mkfifo(store.path / "x")
        with pytest.raises(UserError, match="a pipe or a device"):
            store.read("x")
        return
    planted = UNFINISHED.format("x", os.getpid()) if action == "write" else "x"
    (store.path / planted).symlink_to(outside)
    with pytest.raises((OSError, UserError), match="symbolic links"):
        getattr(store, action)("x", "theirs" if action == "append" else b"theirs")
    assert outside.read_text() == "mine\n"
