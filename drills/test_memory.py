"""Another program takes the memory of the machine, and Ray kills workers: no record changes."""

# ruff: noqa: F811  pytest needs the imported fixtures as parameter names
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys

from ray._common.utils import get_system_memory
from ray._private.utils import get_used_memory

from drills.cluster import ENGINE
from lmzoo.trainables.resolve import store_name
from tests.lab.sweep.conftest import script  # noqa: F401
from tests.lab.sweep.local_sweep import outcome, sweep
from tests.lab.sweep.processes import epochs_on_disk, finish, start, training_processes, wait_until
from tests.toy_study import corpus, corpus_fields, sentences, study  # noqa: F401

EPOCHS = 60  # so that the sweep still runs when the memory is taken
FREE = 2**30
"""Free bytes below which Ray kills workers."""
TAKEN = 2 * 2**30
"""Bytes that the other program takes."""
PROGRAM = "import sys; taken = b'1' * int(sys.argv[1]); input()"


@contextlib.contextmanager
def taken(count: int):
    """Take so many bytes of memory."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(count)], stdin=subprocess.PIPE
    ) as other:
        try:
            yield
        finally:
            other.kill()


def test_a_sweep_whose_workers_ray_kills_for_memory_ends_with_the_same_records(
    script, tmp_path, monkeypatch, study, corpus, corpus_fields
):
    limit = (get_used_memory() + FREE) / get_system_memory()
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{limit:.4f}")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    store = tmp_path / "runs" / store_name(study.name, corpus_fields, corpus.fingerprint)
    options = ("--out", str(tmp_path / "runs"), "--fuse", "off", "--epochs", str(EPOCHS))
    with (tmp_path / "log").open("w") as log:
        driver = start(script, *options, *ENGINE, out=log)
    try:
        wait_until(lambda: epochs_on_disk(store) >= 3 or driver.poll() is not None, 600)
        first = {*training_processes(driver.pid)}
        with taken(TAKEN):
            wait_until(lambda: "because the memory" in (tmp_path / "log").read_text(), 120)
        assert {*training_processes(driver.pid)} != first
        code, _, _ = finish(driver, 1800)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(driver.pid, signal.SIGKILL)
    text = (tmp_path / "log").read_text()
    assert code == 0, text
    study = dataclasses.replace(study, epochs=EPOCHS)
    undisturbed = tmp_path / "undisturbed"
    assert sweep(study, corpus, corpus_fields, undisturbed)
    assert outcome(store) == outcome(undisturbed)
