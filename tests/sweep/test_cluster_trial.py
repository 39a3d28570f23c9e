"""A trial that is cut off from its sweep lets go of its run, and one without work holds none."""

import fcntl
from pathlib import Path

import pytest
import torch

from lmzoo.store.records import RunFolder, epoch_records
from lmzoo.sweep import worker as trials
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore

from .processes import wait_until


@pytest.fixture
def config(study, corpus, corpus_fields, tmp_path):
    """What Tune gives a trial for the study's first run."""
    store = StudyStore(tmp_path / "toy")
    agenda = Planner(study, resolve(study, corpus, corpus_fields), corpus, store)
    job = agenda.issue(agenda.ready()[0])
    yield {"folders": [str(store.run(job.run).path)], "budget": job.budget, "fused": False}
    store.close()


def _trial(config: dict, corpus) -> trials.Worker:
    """A trial as Tune makes it, but in this process."""

    class WithCorpus(trials.Worker):
        def setup(self, config: dict, corpus=corpus, threads: int = 1) -> None:
            super().setup(config, corpus, threads)

    return WithCorpus(config)


def _train_one(trial: trials.Worker) -> None:
    """An epoch of a trial that goes on with a run: it first tells where the run is."""
    trial.train()
    trial.train()


def _free(config: dict) -> bool:
    """Whether nobody holds the run."""
    with (Path(config["folders"][0]) / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_trial_that_was_given_no_work_holds_no_run(config, corpus):
    trial = _trial(config, corpus)
    assert _free(config)
    trial.train()
    assert not _free(config)
    trial.stop()
    assert _free(config)


@pytest.mark.parametrize(("gpu", "where"), [(True, "meta"), (False, "cpu")])
@pytest.mark.parametrize("fused", [True, False])
def test_who_was_given_no_gpu_does_not_ask_for_one(config, corpus, monkeypatch, gpu, where, fused):
    """Ray hides the GPUs of a machine from nobody who asked for none."""

    class OpenedError(Exception):
        """In place of the training itself."""

    def opened(*_, device, **__):
        raise OpenedError(device.type)

    monkeypatch.setattr("lmzoo.device.best_device", lambda: torch.device("meta"))
    monkeypatch.setattr("lmzoo.sweep.worker_run.Run", opened)

    class Given(trials.Worker):
        def setup(self, config: dict) -> None:
            super().setup(config, corpus, gpu=gpu)

    trial = Given({**config, "fused": fused})
    assert trial._corpus.train.tokens.device.type == where
    with pytest.raises(OpenedError, match=where):
        trial.train()


def test_after_a_silence_another_can_go_on_and_so_can_itself(config, corpus, monkeypatch):
    monkeypatch.setattr(trials, "SILENCE", 0.1)
    trial = _trial(config, corpus)
    trial.train()
    wait_until(lambda: _free(config), 20)

    monkeypatch.setattr(trials, "SILENCE", 60.0)
    successor = _trial(config, corpus)
    _train_one(successor)
    assert not _free(config)
    successor.stop()

    _train_one(trial)
    records = RunFolder(Path(config["folders"][0])).records()
    assert [record["epoch"] for record in epoch_records(records)] == [1, 2, 3]
    trial.stop()
