"""A pack of a worker: out of memory, runs that ended or were not reported, writes that fail."""

import time
import weakref

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.lab.store.records import RunFolder
from lmzoo.lab.sweep.messages import Assignment, Job
from lmzoo.lab.sweep.worker import pack as module
from lmzoo.lab.sweep.worker.pack import Pack
from lmzoo.train import pack_trainer
from lmzoo.train import run as run_module
from lmzoo.train.pack_compatibility import pack_key
from lmzoo.trainables.trainer import Trainer

from .local_fleet import fleet_sweep
from .local_sweep import assert_close, outcome

CPU = torch.device("cpu")


class Worker:
    """A pack with a lock, and what it confirmed."""

    def __init__(self, planner, corpus) -> None:
        store = planner.store.store
        self.confirmed: list = []
        self.pack = Pack(store, Trainer(corpus, CPU), self.confirmed.append)

    def apply(self, *join):
        return self.pack.apply(Assignment(join=join))

    def train(self, *jobs):
        return self.pack.train_epoch([job.config["run"] for job in jobs], packed=False)


@pytest.fixture
def job(planner):
    run = planner.ready()[0]
    return Job(run.config, 3, 0, is_new=True)


@pytest.fixture
def make_worker(planner, corpus):
    return lambda: Worker(planner, corpus)


def epochs(reports) -> list[int]:
    return [record["epoch"] for _, record in reports]


def again(job, epoch=0):
    return job._replace(epoch=epoch, is_new=False)


class Tensors:
    """Memory of a pack on the GPU."""


def test_a_pack_that_exceeds_the_memory_is_divided(
    study, corpus, corpus_fields, tmp_path, monkeypatch, undisturbed
):
    """It may exceed the memory at any moment, and its memory must be free before the next try.

    No pack of its size is tried again.
    """
    sizes = []
    freed = []
    exceeded = []
    inner = pack_trainer.PackedTrainer.evaluate

    def exceed(pack, *arguments):
        members = len(pack.stacked.values)
        assert all(tensors() is None for tensors in freed), "the memory is not free"
        result = inner(pack, *arguments)
        if members > 2:
            tensors = Tensors()
            freed.append(weakref.ref(tensors))
            first = pack.stacked.trainings[0]
            exceeded.append((members, pack_key(first.model.config, first.recipe)))
            # As torch does when the memory of the GPU is used up.
            raise torch.OutOfMemoryError
        sizes.append(members)
        return result

    monkeypatch.setattr(pack_trainer.PackedTrainer, "evaluate", exceed)
    _, packs = fleet_sweep(study, corpus, corpus_fields, tmp_path / "packed", workers=1)
    # Or no pack had to be divided.
    assert max(packs) > 4
    assert freed
    assert max(sizes) == 2
    assert len(set(exceeded)) == len(exceeded)
    assert_close(outcome(tmp_path / "packed"), outcome(undisturbed))


def test_a_run_that_ended_on_disk_is_confirmed_and_not_trained(make_worker, job):
    dead = make_worker()
    worker = make_worker()
    dead.apply(job)
    trained = []
    for _ in range(3):
        trained += epochs(dead.train(job))
    dead.pack.writer.wait()
    (ended,) = dead.confirmed
    assert trained == [1, 2, 3]
    assert ended.run == job.config["run"]
    assert ended.status == "finished"
    assert epochs(ended.reports) == [3]

    assert epochs(worker.apply(again(job, epoch=1))) == [2, 3]
    assert worker.train(job) == []
    worker.pack.writer.wait()
    (ended,) = worker.confirmed
    assert ended.run == job.config["run"]
    assert ended.status == "finished"
    assert epochs(ended.reports) == [2, 3]
    assert worker.pack.opened == []


def test_epochs_that_were_not_reported_are_reported_before_the_next_is_trained(make_worker, job):
    dead = make_worker()
    worker = make_worker()
    dead.apply(job)
    dead.train(job)
    dead.train(job)
    # Two epochs are on disk, and the sweep has heard of none.
    dead.pack.suspend()
    assert epochs(worker.apply(again(job))) == [1, 2]
    assert worker.train(job) == [], "the sweep may prune it at these epochs"
    assert epochs(worker.train(job)) == [3]
    worker.pack.suspend()


def test_a_run_without_its_checkpoint_starts_over_and_ends(make_worker, job):
    """Its last epoch is recorded, but not its test: as if it were trained, it would never end."""
    first = make_worker()
    second = make_worker()
    tested = job._replace(config=job.config | {"stage": "confirm"})
    first.apply(tested)
    for _ in range(2):
        first.train(tested)
    first.pack.suspend()
    folder = RunFolder(first.pack.store / job.config["run"])
    *_, last = folder.records()
    folder.append(last | {"epoch": 3})
    # As a sweep does with a run that it has pruned.
    folder.drop_checkpoints()
    assert second.apply(again(tested, epoch=2)) == []
    for epoch in (1, 2, 3):
        assert epochs(second.train(tested)) == [epoch]
    second.pack.writer.wait()
    (done,) = second.confirmed
    assert done.status == "finished"


def test_an_error_of_a_write_in_the_background_is_raised(make_worker, job, monkeypatch):
    inner = RunFolder.append
    worker = make_worker()

    def append(folder, *records):
        # A run also has notes.
        if "epoch" in {record["event"] for record in records}:
            raise UserError("the disk is gone")
        inner(folder, *records)

    monkeypatch.setattr(RunFolder, "append", append)
    worker.apply(job)

    def train():
        for _ in range(3):
            worker.train(job)
            while worker.pack.writer._queues:
                time.sleep(0.01)
        worker.train()

    with pytest.raises(UserError, match="the disk is gone"):
        train()
    assert worker.confirmed == []


@pytest.mark.parametrize("when", ["open", "train"])
def test_a_run_whose_model_raises_fails_and_the_worker_continues(
    when, make_worker, job, planner, monkeypatch
):
    worker = make_worker()
    other = planner.ready()[1]
    owner = run_module
    name = "fit"
    if when == "open":
        owner = module
        name = "TrainingRun"
    inner = getattr(owner, name)

    def fault(first, second, *arguments, **options):
        if when == "open":
            seed = second.config["seed"]
        else:
            seed = first.seed
        if seed == job.config["seed"]:
            raise IndexError("planted\nfault \udcff")
        return inner(first, second, *arguments, **options)

    monkeypatch.setattr(owner, name, fault)
    healthy = job._replace(config=other.config | {"seed": 77})
    worker.apply(job, healthy)
    worker.train(job, healthy)
    worker.pack.writer.wait()
    (ended,) = worker.confirmed
    assert ended.run == job.config["run"]
    assert ended.status == "failed"
    assert ended.reason.startswith("IndexError: planted (test_pack.py, line ")
    text = (planner.store.path / ended.run / "traceback.txt").read_text()
    assert "planted\nfault" in text
    assert worker.pack.opened == [other.id]
    worker.pack.suspend()
