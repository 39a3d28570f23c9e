"""The sweep of `make sweep` on one GPU records few graphs: steps, validation and test together."""

import dataclasses

import pytest

from lmzoo.data.corpus import open_corpus
from lmzoo.kernels import dispatch
from lmzoo.lab.store.records import read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.train import stepper
from lmzoo.trainables.resolve import corpus_config, resolve
from sweeps.gru_ablation import STUDY
from tests.lab.sweep.local_fleet import LocalWorker
from tests.train.fake_recorder import FakeRecorder

MOST_RECORDINGS = 8
H100 = 80 * 2**30


@pytest.mark.slow
def test_the_main_sweep_records_at_most_eight_graphs(tmp_path, monkeypatch):
    """All its points and settings, at a small size of model and data."""
    recorder = FakeRecorder()
    monkeypatch.setattr(stepper, "device_recorder", lambda device: recorder)
    monkeypatch.setattr(dispatch, "DTYPES", set())  # on CUDA there are no kernels of CPUs
    small = STUDY.fields | {"model.width": 4}
    study = dataclasses.replace(STUDY, fields=small, epochs=6)
    fields = corpus_config(study, study.fields) | {"train": 200, "valid": 20, "test": 20}
    corpus = open_corpus(fields)
    store = StudyStore(tmp_path)
    points = resolve(study, corpus, fields)
    fleet = Fleet(Planner(study, points, store), Packer(corpus, None))
    packs = []
    worker = LocalWorker("gpu", fleet, tmp_path, corpus, memory=H100, live=1)
    while not fleet.done:
        assignment = worker.exchange(0.0)
        if assignment is not None:
            packs.append(len(assignment.members))
            worker.train(assignment)
    worker.pack.suspend()
    worker.lock.close()
    store.close()
    stages = [read_json(path)["stage"] for path in tmp_path.glob("*/config.json")]
    # Eleven points and the reference.
    assert len(stages) >= 12 * (5 + study.seeds)
    assert max(packs) == 53  # confirm runs of 11 points and the reference's own seeds
    assert recorder.replays > recorder.runs
    assert 0 < recorder.recordings <= MOST_RECORDINGS
