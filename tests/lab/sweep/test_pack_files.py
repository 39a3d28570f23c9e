"""The files of a pack: a worker that is killed at any write loses no record of any run."""

import itertools
import json
import zipfile
from pathlib import Path

import pytest
import torch

from lmzoo.lab.store import pack_files
from lmzoo.lab.store.archive import archive_runs
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import CHECKPOINT, CONFIG, RunFolder, read_json
from lmzoo.lab.sweep.messages import Assignment, Job
from lmzoo.lab.sweep.worker.pack import Pack
from lmzoo.train.checkpoint import read_checkpoint
from lmzoo.trainables.trainer import Trainer
from tests.train.written_runs import KilledError, kill_at

from .local_sweep import assert_close, outcome

CPU = torch.device("cpu")
BUDGET = 3
WORKER = "1"


@pytest.fixture
def jobs(planner):
    """Three runs that end with a test."""
    found = []
    for run in planner.ready()[:3]:
        config = run.config | {"stage": "confirm"}
        found.append(Job(config, BUDGET, 0, is_new=True))
    return found


@pytest.fixture
def members(jobs):
    return [job.config["run"] for job in jobs]


def make_pack(path, corpus, worker=WORKER):
    confirmed: list = []
    return Pack(Store(path), Trainer(corpus, CPU), confirmed.append, worker), confirmed


@pytest.fixture
def pack(jobs, corpus, tmp_path, monkeypatch):
    """A pack of three runs that writes after each epoch."""
    monkeypatch.setattr(Store, "save_seconds", 0.0)
    pack, _ = make_pack(tmp_path, corpus)
    pack.apply(Assignment(join=jobs))
    yield pack
    pack.writer.close()


def train(path, jobs, corpus, *, worker=WORKER, packed=True) -> bool:
    """Train until all have ended; return False if the worker is killed."""
    pack, confirmed = make_pack(path, corpus, worker)
    runs = [job.config["run"] for job in jobs]
    try:
        pack.apply(Assignment(join=jobs))
        # Epochs that a dead worker lost are trained again.
        for _ in range(3 * BUDGET):
            pack.train_epoch(runs, packed=packed)
            pack.writer.wait()
            if len(confirmed) == len(jobs):
                pack.suspend()
                return True
        raise AssertionError("the runs do not end")
    except KilledError:
        return False
    finally:
        pack.writer._pool.shutdown()


def again(path, job):
    folder = RunFolder(Store(path) / job.config["run"])
    is_new = folder.config is None and not folder.path.exists()
    return job._replace(is_new=is_new)


@pytest.mark.parametrize("save_seconds", [0.0, 10.0])
def test_a_pack_killed_at_any_write_goes_on_alone_and_in_another_pack(
    jobs, corpus, tmp_path, monkeypatch, save_seconds
):
    monkeypatch.setattr(Store, "save_seconds", save_seconds)
    assert train(tmp_path / "whole", jobs, corpus)
    expected = outcome(tmp_path / "whole")
    # The epochs, a test and an end.
    lengths = list(map(len, expected.values()))
    assert lengths == [BUDGET + 2] * 3
    assert not files_of_packs(tmp_path / "whole")
    kills = 0
    for after, count in itertools.product((False, True), range(1, 40, 2)):
        path = tmp_path / f"{after}-{count}"
        with monkeypatch.context() as patch:
            kill_at(patch, count, after=after)
            if train(path, jobs, corpus):
                continue
        kills += 1
        pack_files.unpack(Store(path), WORKER)
        first, *rest = [again(path, job) for job in jobs]
        assert train(path, [first], corpus, worker="2", packed=False)
        assert train(path, rest, corpus, worker="3")
        assert_close(outcome(path), expected)
    assert kills > 8


def test_the_rows_of_a_dead_worker_are_checkpoints_of_its_runs(pack, members, tmp_path):
    """They equal what a run writes itself, also if its last epoch was not its best."""
    for _ in range(2):
        pack.train_epoch(members, packed=True)
        first = pack._open[members[0]].run.training
        first.best_loss = -1.0  # the second epoch is worse
    pack.writer.wait()
    expected = {name: run.run.training.dump() for name, run in pack._open.items()}
    assert not list(tmp_path.glob(f"*/{CHECKPOINT}"))
    pack_files.unpack_all(Store(tmp_path))
    assert not files_of_packs(tmp_path)
    for name, state in expected.items():
        data = (tmp_path / name / CHECKPOINT).read_bytes()
        read = read_checkpoint(data, name)
        best = 2
        if name == members[0]:
            best = 1
        assert read["best"]["epoch"] == best
        for key in ("epoch", "steps", "record"):
            assert read[key] == state[key], key
        for key in ("weights", "optimiser", "best"):
            tensors = dict(state[key])
            torch.testing.assert_close(read[key], tensors, rtol=0, atol=0, msg=key)


def test_damage_of_a_checkpoint_from_the_rows_is_seen(pack, members, tmp_path):
    pack.train_epoch(members, packed=True)
    pack.writer.wait()
    pack_files.unpack_all(Store(tmp_path))
    for name in members:
        data = (tmp_path / name / CHECKPOINT).read_bytes()
        damaged = data[:-9] + b"\x01" + data[-8:]
        with pytest.raises(ValueError, match="damaged"):
            read_checkpoint(damaged, name)


def files_of_packs(path):
    return list(path.glob(f"{pack_files.PREFIX}*"))


def test_a_damaged_file_of_a_pack_costs_one_write(pack, members, tmp_path):
    for _ in range(2):
        pack.train_epoch(members, packed=True)
    pack.writer.wait()
    rows = tmp_path / f"{pack_files.PREFIX}{WORKER}" / pack_files.ROWS[1]
    data = bytearray(rows.read_bytes())
    data[-5] ^= 1
    rows.write_bytes(data)
    pack_files.unpack(Store(tmp_path), WORKER)
    for name in members:
        folder = RunFolder(tmp_path / name)
        checkpoint = read_checkpoint(folder.checkpoint.read_bytes(), name)
        epochs = [record["epoch"] for record in folder.records()]
        assert epochs == [1, 2]
        # The rows of the epoch before are kept.
        assert checkpoint["epoch"] == 1


def test_a_run_that_left_the_pack_keeps_its_newer_state(pack, jobs, members, corpus, tmp_path):
    left, stayed, _ = (tmp_path / name / CHECKPOINT for name in members)
    pack.train_epoch(members, packed=True)
    pack.apply(Assignment(release=members[:1]))
    pack.writer.wait()
    job = again(tmp_path, jobs[0])
    assert train(tmp_path, [job], corpus, worker="2", packed=False)
    before = left.read_bytes()
    pack_files.unpack(Store(tmp_path), WORKER)
    assert left.read_bytes() == before
    assert read_checkpoint(stayed.read_bytes())["epoch"] == 1


def test_an_epoch_of_a_pack_is_two_writes(pack, members, monkeypatch):
    pack.writer.wait()
    with monkeypatch.context() as patch:
        # This counts the writes, and kills at none of them.
        writes = kill_at(patch, 100, after=True)
        pack.train_epoch(members, packed=True)
        pack.writer.wait()
    # One file of rows and one append, whatever the size of the pack.
    assert writes == [2]
    pack.suspend()


@pytest.mark.parametrize("packed", [True, False])
def test_runs_of_earlier_versions_go_on(corpus, tmp_path, packed):
    """The store has runs after two of three epochs in a pack, of two commits of version 0.3.0."""
    with zipfile.ZipFile(Path(__file__).parent / "data/store_0_3.zip") as archive:
        archive.extractall(tmp_path / "old")
    paths = sorted((tmp_path / "old").glob(f"*/{CONFIG}"))
    configs = [read_json(path) | {"stage": "tune"} for path in paths]
    assert len(configs) == 4
    fresh = [Job(config, BUDGET, 0, is_new=True) for config in configs]
    assert train(tmp_path / "new", fresh, corpus)
    jobs = [Job(config, BUDGET, 2, is_new=False) for config in configs]
    assert train(tmp_path / "old", jobs, corpus, packed=packed)
    found = without_devices(outcome(tmp_path / "old"))
    expected = without_devices(outcome(tmp_path / "new"))
    assert_close(found, expected)


def without_devices(outcome):
    """Return the records without a field that earlier versions did not write."""
    for records in outcome.values():
        for record in records:
            record.pop("device", None)
    return outcome


GOOD = {"run": "a", "event": "epoch", "epoch": 1, "valid_token": 2.0}


def unpack_segment(path, *lines):
    """Leave the segment of a dead worker with these lines, unpack it, and return the records."""
    pack = Store(path) / f"{pack_files.PREFIX}{WORKER}"
    pack.append(pack_files.SEGMENT, "\n".join(map(json.dumps, lines)))
    pack_files.unpack_all(Store(path))
    assert pack.read(pack_files.SEGMENT) is None
    return RunFolder(path / "a").records()


def test_the_segment_of_a_dead_worker_gets_into_the_folders_of_its_runs(tmp_path):
    assert len(unpack_segment(tmp_path, GOOD)) == 1


@pytest.mark.parametrize("bad", [{}, GOOD | {"epoch": "1"}, GOOD | {"valid_token": "2"}])
def test_a_damaged_line_of_a_segment_leaves_the_runs_to_their_own_folders(bad, tmp_path):
    assert unpack_segment(tmp_path, GOOD, bad) == []


def test_a_run_that_was_archived_gets_no_folder_from_a_dead_worker(tmp_path):
    folder = RunFolder(tmp_path / "a")
    folder.create({})
    folder.append({"event": "end", "epoch": 1, "status": "finished"})
    archive_runs(tmp_path, ["a"])
    late = {"run": "a", "event": "test", "epoch": 1, "token": 1}
    unpack_segment(tmp_path, late)
    (archive,) = tmp_path.iterdir()
    assert archive.name == "ended"
