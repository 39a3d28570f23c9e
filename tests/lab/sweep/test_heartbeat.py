"""A worker that is stopped is killed and replaced; the sweep ends with the same records."""

import dataclasses
import os
import signal
from pathlib import Path

from lmzoo.trainables.store_name import store_name

from .local_sweep import outcome, sweep
from .processes import epochs_on_disk, finish, slow_ray_test, training_processes, wait_until

EPOCHS = 60  # so that the sweep still runs when its workers are stopped


def stop_worker(driver: int, stopped: set[int]) -> int:
    """Send SIGSTOP to a worker that is not yet stopped; return its process id."""
    pid = min(wait_until(lambda: set(training_processes(driver)) - stopped, 900))
    os.kill(pid, signal.SIGSTOP)
    return pid


def existing(pids: set[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@slow_ray_test
def test_a_sweep_with_stopped_workers_ends_with_the_same_records(
    tmp_path, start_sweep, study, corpus, corpus_fields
):
    store = tmp_path / "runs" / store_name(study.name, corpus_fields)
    driver, stopped = start_sweep("--epochs", str(EPOCHS)), set[int]()
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
