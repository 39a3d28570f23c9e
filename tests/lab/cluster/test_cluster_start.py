"""Starting Ray on this machine: attempts, parallel preparation, signals."""

import contextlib
import errno
import logging
import os
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster import connection as clusters


@pytest.fixture
def replace_init(monkeypatch):
    """Replaces `ray.init`."""

    def replace(init) -> None:
        monkeypatch.setattr(clusters, "ADDRESS", "")
        monkeypatch.setattr(clusters.ray, "init", init)
        monkeypatch.setattr(clusters.ray, "nodes", lambda: [{"NodeManagerAddress": "127.0.0.1"}])
        # Without it, workers start as usual.
        monkeypatch.setattr(clusters.forks, "start_server", Mock(side_effect=OSError))

    return replace


@pytest.fixture
def fail_to_start(replace_init, monkeypatch):
    """Let so many starts fail; returns the list of the processors of each start."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})  # as `taskset` does

    def fail(failures):
        calls = []

        def init(num_cpus, **_):
            assert os.environ["RAY_AUTH_TOKEN"] == clusters.VARIABLES["RAY_AUTH_TOKEN"]
            calls.append(num_cpus)
            if len(calls) <= failures:
                raise Exception("The current node timed out during startup. This could")

        replace_init(init)
        return calls

    return fail


@contextlib.contextmanager
def unchanged():
    """The environment and the log level are the same after the block."""
    logger = logging.getLogger("ray.tune")
    before = dict(os.environ), logger.level
    yield
    assert (dict(os.environ), logger.level) == before


# Of a machine with more processors, and of a container with half of one.
@pytest.mark.parametrize("limit", [4, 0.5])
@pytest.mark.parametrize("failures", [0, clusters.START_ATTEMPTS - 1])
def test_a_start_that_fails_is_attempted_again(fail_to_start, failures, limit, monkeypatch):
    monkeypatch.setattr(clusters, "NUM_CPUS", lambda: limit)
    calls = fail_to_start(failures)
    with unchanged(), clusters.cluster():
        assert calls == [1] * (failures + 1)


def test_starts_that_all_fail_are_one_line(fail_to_start):
    calls = fail_to_start(clusters.START_ATTEMPTS)
    error = pytest.raises(UserError, match="timed out")
    with unchanged(), error, clusters.cluster():
        pytest.fail("it has started")
    assert len(calls) == clusters.START_ATTEMPTS


def test_a_ray_that_others_reach_is_ended(replace_init, monkeypatch):
    replace_init(lambda **_: None)
    monkeypatch.setattr(clusters.ray, "nodes", lambda: [{"NodeManagerAddress": "10.0.0.7"}])
    ended = Mock()
    monkeypatch.setattr(clusters.ray, "shutdown", ended)
    with pytest.raises(UserError, match=r"Ray .* listens on 10\.0\.0\.7"), clusters.cluster():
        pass
    assert ended.called


# A port may be free at the next attempt.
ATTEMPTS = {errno.EACCES: 1, errno.EADDRINUSE: clusters.START_ATTEMPTS}


@pytest.mark.parametrize("number", ATTEMPTS)
def test_an_error_that_stays_is_said_whole_and_at_once(replace_init, number):
    calls = []

    def init(**_):
        calls.append(1)
        raise OSError(number, "Refused", "/tmp/ray.1/x.sock")

    replace_init(init)
    with pytest.raises(UserError, match=r"Refused: '/tmp/ray.1/x.sock'"):
        clusters._start()
    assert len(calls) == ATTEMPTS[number]


@pytest.mark.parametrize("state", ["dead", "new", "own", "alive", "answers", "of another", "link"])
def test_sessions_of_dead_processes_are_deleted_and_only_those(monkeypatch, state):
    with (
        subprocess.Popen(["true"]) as ended,
        tempfile.TemporaryDirectory(dir="/tmp") as folder,  # a socket has a short name
    ):
        ended.wait()
        _check_sessions(Path(folder), ended, state, monkeypatch)


def _check_sessions(tmp_path, ended, state, monkeypatch) -> None:
    pid = ended.pid
    if state == "alive":
        pid = os.getpid()
    session = tmp_path / f"session_2026-01-01_00-00-00_0_{pid}"
    target = session
    if state == "link":
        target = tmp_path / "target"
        session.symlink_to(target)
    (target / "sockets").mkdir(parents=True)
    others = [tmp_path / "session_latest", tmp_path / "ray_current_cluster"]
    for path in others:
        path.touch()
    # With a negative time, no session is new.
    patience = -1.0
    if state in ("new", "own"):
        patience = 60.0
    monkeypatch.setattr(clusters, "NEW_SECONDS", patience)
    if state == "own":
        (session / clusters.STARTED).touch()
    if state == "of another":
        monkeypatch.setattr(clusters.os, "geteuid", lambda: os.getuid() + 1)
    with socket.socket(socket.AF_UNIX) as raylet:
        raylet.bind(str(session / "sockets/raylet"))
        if state == "answers":
            raylet.listen()
        clusters.delete_abandoned_sessions(tmp_path)
    assert session.exists() == (state not in ("dead", "own"))
    assert all(path.exists() for path in others)


@pytest.mark.parametrize(("limit", "said"), [("AS", "8 GB of"), ("FSIZE", "8 GB in"), ("", "")])
def test_a_small_limit_is_said_before_ray_starts(replace_init, caplog, monkeypatch, limit, said):
    limits = {getattr(clusters.resource, f"RLIMIT_{limit}", None): 8_000_000_000}
    monkeypatch.setattr(clusters.resource, "getrlimit", lambda n: (limits.get(n, -1), -1))
    replace_init(lambda *_, **__: None)
    clusters._start()
    assert said in caplog.text
    assert ("may hang" in caplog.text) == bool(limit)


@pytest.mark.parametrize("folder", ["here", "/tmp/ü", f"/tmp/{'x' * 99}", "/proc"])
def test_a_temporary_folder_that_ray_cannot_use_is_refused(folder):
    with pytest.raises(UserError, match="TMPDIR"):
        clusters.check_temporary_folder({"TMPDIR": folder})


@pytest.mark.parametrize("error", [None, UserError("no such thing"), KeyboardInterrupt()])
def test_meanwhile_runs_while_ray_starts_which_is_shut_down_if_it_fails(
    replace_init, monkeypatch, error
):
    may_start = threading.Event()
    log = []

    def init(**_):
        assert may_start.wait(60)
        log.append("started")

    def meanwhile():
        log.append("meanwhile")
        threading.Timer(0.1, may_start.set).start()
        if error:
            raise error

    replace_init(init)
    monkeypatch.setattr(clusters.ray, "shutdown", lambda: log.append("ended"))
    with contextlib.ExitStack() as stack:
        if error:
            stack.enter_context(pytest.raises(type(error)))
        stack.enter_context(clusters.cluster(meanwhile))
        assert not error
    assert log == ["meanwhile", "started", "ended"]


def test_ray_is_started_once_before_it_is_needed_and_ended_if_it_is_not(replace_init, monkeypatch):
    log = []
    replace_init(lambda **_: log.append("started"))
    monkeypatch.setattr(clusters.ray, "shutdown", lambda: log.append("ended"))
    clusters.begin()
    with clusters.cluster():
        assert log == ["started"]
    clusters.abandon()
    assert log == ["started", "ended"]
    clusters.begin()
    clusters.abandon()
    assert log == ["started", "ended"] * 2

    def fail(**_):
        log.append("fails")
        assert clusters._ABANDONED.wait(60)
        raise OSError("timed out")

    replace_init(fail)
    clusters.begin()
    clusters.abandon()
    assert log[4:] == ["fails", "ended"]


def test_the_ray_of_the_process_is_used_and_stays(replace_init, monkeypatch):
    replace_init(lambda **_: pytest.fail("another one starts"))
    monkeypatch.setattr(clusters.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(clusters.ray, "get_runtime_context", lambda: Mock(gcs_address="here:1"))
    monkeypatch.setattr(clusters.ray, "shutdown", lambda: pytest.fail("it ends"))
    before = dict(os.environ)
    with clusters.cluster():
        assert clusters.ADDRESS == "here:1"
        assert dict(os.environ) == before
        clusters.kill_local_ray()
    assert clusters.ADDRESS == ""


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://10.0.0.1:10001", "ray://10.0.0.1:10001 is not an address that a sweep can join"),
        ("127.0.0.1:1", "no Ray cluster responds at 127.0.0.1:1"),
        ("nonsense", "this machine cannot join the Ray cluster at nonsense"),
        ("another node", "run the sweep on a node of the cluster"),
    ],
)
def test_an_address_that_cannot_be_joined_is_one_line(monkeypatch, address, message):
    def init(**_):
        raise ConnectionError(f"Failed to connect to Ray cluster at {address}")

    with socket.create_server(("127.0.0.1", 0)) as head:
        if address == "another node":
            address = f"127.0.0.1:{head.getsockname()[1]}"
            monkeypatch.setattr(clusters.ray, "init", init)
        monkeypatch.setattr(clusters.ray, "nodes", lambda: [{"NodeManagerAddress": "127.0.0.1"}])
        monkeypatch.setattr(clusters, "ADDRESS", address)
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(UserError, match=message), clusters.cluster():
            pytest.fail("it joins")
