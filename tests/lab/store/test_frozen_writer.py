"""A process that is stopped in the middle of a write, and loses its lock, writes nothing later."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.lab.store.local import Store

FROZEN = """
import fcntl, os, signal, sys
from pathlib import Path
from lmzoo.lab.store.local import Store

path, operation, moment = sys.argv[1:]
store = Store(Path(path))
lock = store.lock(".worker-1")
run = store / "run"
run.append("records", "one")
run.write("state", b"one")


def freeze():
    fcntl.flock(lock._file, fcntl.LOCK_UN)  # as a file server does that hears nothing
    os.kill(os.getpid(), signal.SIGSTOP)


def stop(function):
    def stopping(*arguments):
        if moment == "before":
            freeze()
        result = function(*arguments)
        if moment == "after":
            freeze()
        return result
    return stopping


lock.check = stop(lock.check)
try:
    run.append("records", "late") if operation == "append" else run.write("state", b"late", "old")
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("operation", ["append", "write"])
def test_a_writer_that_was_stopped_changes_nothing_after_another_one(tmp_path, operation, moment):
    """It is stopped before or after the check of its lock, the last step before the change."""
    path = tmp_path / "store"
    process = subprocess.Popen(
        [sys.executable, "-c", FROZEN, str(path), operation, moment],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        store = Store(path)
        store.clear_locks(".worker-*", 0.0)
        with_lock = store.lock(".worker-2")
        run = store / "run"
        run.take_over("records")
        run.append("records", "two")
        run.write("state", b"two")
        os.kill(process.pid, signal.SIGCONT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert run.read("records") == b"one\ntwo\n"
    assert run.read("state") == b"two"
    if (operation, moment) != ("append", "after"):  # it has written into the file that was replaced
        assert "was locked by another process, which has ended" in said
    with_lock.close()
    assert sorted(file.name for file in run.path.iterdir() if file.name != "old") == [
        "records",
        "state",
    ]
