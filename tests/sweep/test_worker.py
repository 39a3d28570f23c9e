"""A worker locks its runs while it trains them, and releases them when it is disconnected."""

import fcntl
from pathlib import Path

import pytest
import torch

from lmzoo.store.records import RunFolder, epoch_records
from lmzoo.sweep import worker as worker_module
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore
from lmzoo.sweep.worker import Worker

from .local_sweep import local_worker
from .processes import wait_until


@pytest.fixture
def config(study, corpus, corpus_fields, tmp_path):
    """The trial config of the study's first run."""
    store = StudyStore(tmp_path / "toy")
    planner = Planner(study, resolve(study, corpus, corpus_fields), corpus, store)
    run = planner.start_next()
    assert run is not None
    yield {"folders": [str(store.run(run.id).path)], "budget": run.budget, "packed": False}
    store.close()


def train_one_epoch(worker: Worker) -> None:
    """Train an epoch of a resumed run; its first step only reports the last epoch."""
    worker.train()
    worker.train()


def is_unlocked(config: dict) -> bool:
    with (Path(config["folders"][0]) / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_worker_locks_its_run_at_the_first_step(config, corpus):
    worker = local_worker(config, corpus)
    assert is_unlocked(config)
    worker.train()
    assert not is_unlocked(config)
    worker.stop()
    assert is_unlocked(config)


@pytest.mark.parametrize(("gpu", "device"), [(True, "meta"), (False, "cpu")])
@pytest.mark.parametrize("packed", [True, False])
def test_a_worker_without_a_gpu_share_uses_the_cpu(
    config, corpus, monkeypatch, gpu, device, packed
):
    """Ray does not hide a machine's GPUs from a worker that has requested none."""

    class RunOpenedError(Exception):
        """Raised in place of the training."""

    def open_run(*_, device, **__):
        raise RunOpenedError(device.type)

    monkeypatch.setattr("lmzoo.device.best_device", lambda: torch.device("meta"))
    monkeypatch.setattr("lmzoo.sweep.worker_run.Run", open_run)

    worker = local_worker({**config, "packed": packed}, corpus, gpu=gpu)
    assert worker._corpus.train.tokens.device.type == device
    with pytest.raises(RunOpenedError, match=device):
        worker.train()


def test_a_disconnected_worker_releases_its_run_and_can_continue_it_later(
    config, corpus, monkeypatch
):
    monkeypatch.setattr(worker_module, "RELEASE_SECONDS", 0.1)
    worker = local_worker(config, corpus)
    worker.train()
    wait_until(lambda: is_unlocked(config), 20)

    monkeypatch.setattr(worker_module, "RELEASE_SECONDS", 60.0)
    successor = local_worker(config, corpus)
    train_one_epoch(successor)
    assert not is_unlocked(config)
    successor.stop()

    train_one_epoch(worker)
    records = RunFolder(Path(config["folders"][0])).records()
    assert [record["epoch"] for record in epoch_records(records)] == [1, 2, 3]
    worker.stop()
