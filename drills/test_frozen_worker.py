"""A worker that is stopped is killed and replaced; the sweep ends with the same records."""

# ruff: noqa: F811  pytest needs the imported fixtures as parameter names
import dataclasses
import os
import signal
from pathlib import Path

from drills.cluster import ENGINE
from lmzoo.trainables.resolve import store_name
from tests.lab.sweep.conftest import script, start_sweep  # noqa: F401
from tests.lab.sweep.local_sweep import outcome, sweep
from tests.lab.sweep.processes import epochs_on_disk, finish, training_processes, wait_until
from tests.toy_study import corpus, corpus_fields, sentences, study  # noqa: F401

EPOCHS = 60  # so that the sweep still runs when its workers are stopped


def stop_worker(driver: int, stopped: set[int]) -> int:
    """Send SIGSTOP to a worker that is not yet stopped; return its process id."""
    pid = min(wait_until(lambda: set(training_processes(driver)) - stopped, 900))
    os.kill(pid, signal.SIGSTOP)
    return pid


def existing(pids: set[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_sweep_with_stopped_workers_ends_with_the_same_records(
    tmp_path, start_sweep, study, corpus, corpus_fields
):
    store = tmp_path / "runs" / store_name(study.name, corpus_fields, corpus.fingerprint)
    driver = start_sweep("--epochs", str(EPOCHS), *ENGINE)
    stopped = set[int]()
    for epochs in (3, 10):
        wait_until(lambda epochs=epochs: epochs_on_disk(store) >= epochs, 900)
        stopped.add(stop_worker(driver.pid, stopped))
    code, _, err = finish(driver, 1800)
    assert code == 0, err
    assert "a worker has sent no heartbeat for 60 s" in err
    assert not existing(stopped)

    study = dataclasses.replace(study, epochs=EPOCHS)
    undisturbed = tmp_path / "undisturbed"
    assert sweep(study, corpus, corpus_fields, undisturbed)
    assert outcome(store) == outcome(undisturbed)
