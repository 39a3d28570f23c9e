"""A folder that is full, away or half written: nothing is lost, nothing is written by half."""

import errno
import fcntl
import logging
import os
import subprocess
import sys

import pytest

from drills.faults import fill, small_disk
from lmzoo.errors import UserError
from lmzoo.store import retry as persist
from lmzoo.store.local import Store


@pytest.fixture
def here(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def pauses(monkeypatch):
    """Time goes by only in pauses."""
    now, slept = [0.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(persist.time, "sleep", sleep)
    monkeypatch.setattr(persist.time, "monotonic", lambda: now[0])
    return slept


def failing(times, number):
    """An action that fails so many times with this error, and then returns how often it ran."""
    calls = []

    def action():
        calls.append(1)
        if len(calls) <= times:
            raise OSError(number, os.strerror(number))
        return len(calls)

    return action


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.ESTALE])
def test_a_store_that_comes_back_is_waited_for_and_the_log_says_so(pauses, caplog, number):
    with caplog.at_level(logging.WARNING, "lmzoo.store"):
        assert persist.retry(failing(4, number), "runs/x") == 5
    assert pauses == sorted(pauses)
    assert len(caplog.messages) == 4
    assert all(f"runs/x: {os.strerror(number)}" in text for text in caplog.messages)


def test_a_store_that_stays_away_ends_in_one_line(pauses):
    with pytest.raises(UserError, match=r"runs/x: No space left on device, for 60 s") as caught:
        persist.retry(failing(10**9, errno.ENOSPC), "runs/x")
    assert "\n" not in str(caught.value)
    assert sum(pauses) == pytest.approx(persist.PATIENCE)


@pytest.mark.parametrize("number", [errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM])
def test_what_does_not_pass_ends_at_once_in_one_line(pauses, number):
    with pytest.raises(UserError, match=rf"^runs/x: {os.strerror(number)}; .* another store$"):
        persist.retry(failing(1, number), "runs/x")
    assert not pauses


@pytest.mark.parametrize("number", [errno.EEXIST, errno.ENOENT])
def test_whether_a_file_is_there_is_an_answer(pauses, number):
    with pytest.raises(OSError, match=os.strerror(number)) as answer:
        persist.retry(failing(1, number), "runs/x")
    assert answer.value.errno == number
    assert not pauses


@pytest.mark.parametrize(
    "ask",
    [
        lambda place: place.read("state"),
        lambda place: place.write("state", b""),
        lambda place: place.append("lines", "one"),
        lambda place: place.delete("state"),
        lambda place: place.lock(".lock"),
    ],
)
def test_a_store_below_a_file_is_refused_in_one_line(tmp_path, ask):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/x.*: Not a directory; mend that"):
        ask(Store(tmp_path / "file" / "x"))


def test_a_store_of_another_account_is_refused_in_one_line(tmp_path):
    """As another account, since nothing is forbidden to root."""
    code = (
        "import os, sys; from pathlib import Path; from lmzoo.store.local import Store\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "Store(Path(sys.argv[1])).lock('.driver')"
    )
    if os.getuid():
        pytest.skip("only root can become another account")
    (tmp_path / "mine").mkdir(mode=0o700)
    where = str(tmp_path / "mine" / "store")
    done = subprocess.run([sys.executable, "-c", code, where], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(
        "store: Permission denied; mend that, or give another store"
    )
    assert "UserError" in done.stderr


def test_a_replaced_file_is_kept_as_the_one_before(here):
    for text in (b"one", b"two", b"three"):
        here.write("state", text, keep="before")
    assert (here.read("state"), here.read("before")) == (b"three", b"two")
    here.delete("state", "before", "never")
    assert (here.read("state"), here.read("before")) == (None, None)


@pytest.mark.parametrize("torn", [b"{", b'{"epoch": 3', b"x" * 70_000])
def test_an_append_cuts_off_what_a_killed_writer_left(here, torn):
    here.append("lines", "one")
    with (here.path / "lines").open("ab") as file:
        file.write(torn)
    here.append("lines", "two")
    assert here.read("lines") == b"one\ntwo\n"


def test_an_append_cuts_off_a_torn_first_line(here):
    here.path.mkdir()
    (here.path / "lines").write_bytes(b"{torn")
    here.append("lines", "one")
    assert here.read("lines") == b"one\n"


def test_a_disk_that_is_full_damages_nothing_and_goes_on_when_there_is_space(disk):
    here = Store(disk)
    here.write("state", b"s" * 100_000)
    here.append("lines", "first")
    filler = disk / "filler"
    fill(filler)

    waited = []

    def tidy(*_):
        """What the store looks like while it waits; then somebody makes room."""
        assert {p.name for p in disk.iterdir()} - {"filler"} == {"state", "lines"}
        assert here.read("state") == b"s" * 100_000
        assert here.read("lines") == b"first\n"
        filler.unlink()
        waited.append(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persist.time, "sleep", tidy)
        here.write("state", b"t" * 100_000)
    assert waited == [1]
    fill(filler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persist.time, "sleep", lambda _: filler.unlink())
        here.append("lines", "x" * 50_000)
    assert here.read("state") == b"t" * 100_000
    assert here.read("lines") == b"first\n" + b"x" * 50_000 + b"\n"


@pytest.fixture
def disk(tmp_path):
    try:
        with small_disk(tmp_path / "disk", 1) as path:
            yield path
    except PermissionError as error:
        pytest.skip(f"{error}; the test needs root")


def test_a_holder_that_is_killed_lets_go_and_one_that_lives_is_named(here):
    code = (
        "import sys, time; from pathlib import Path; from lmzoo.store.local import Store\n"
        "held = Store(Path(sys.argv[1])).lock('.lock'); print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(here.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=rf"is in use by process {process.pid} on \S+; wait"):
        here.lock(".lock")
    process.kill()
    process.communicate()
    here.lock(".lock", patience=5.0).close()


def test_who_was_forgotten_while_it_stood_still_does_not_write(here, monkeypatch):
    """A file server has taken the lock back, and given it to a process elsewhere."""
    lock = here.lock(".lock")
    here.append("records", "one")
    fcntl.flock(lock, fcntl.LOCK_UN)
    other = Store(here.path)
    monkeypatch.setattr("lmzoo.store.local.process_name", lambda: "process 7 on elsewhere")
    held = other.lock(".lock")
    other.append("records", "two")
    for write in (lambda: here.append("records", "three"), lambda: here.write("state", b"")):
        with pytest.raises(UserError, match="no longer held: process 7 on elsewhere has its lock"):
            write()
    other.append("records", "four")
    assert here.read("records") == b"one\ntwo\nfour\n"
    assert here.read("state") is None
    held.close()
    lock.close()
