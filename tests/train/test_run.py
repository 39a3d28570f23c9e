"""A run on disk: an interruption loses no record and duplicates none."""

import pickle
import zipfile
from contextlib import closing

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.lab.store import records as files
from lmzoo.train.checkpoint import checkpoint_bytes, read_checkpoint
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import Run, run_config
from lmzoo.train.trained import read_model_config

RECIPE = Recipe(batch=16)


@pytest.fixture
def config(corpus):
    model = zoo.config("DLM46", width=4, emission={"components": 3})
    return run_config(model, RECIPE, corpus, {"name": "toy"}, seed=0)


@pytest.fixture
def folder(tmp_path, config):
    return files.RunFolder(tmp_path / config["run"])


def _train(folder, config, corpus, budget):
    with closing(Run(folder, config, corpus)) as run:
        list(run.train(budget))


TIMINGS = ("seconds", "tokens_per_second", "time", "environment")


def _records(folder, without=()):
    """Return the records without timings, and without the events of some kinds."""
    records = []
    for record in folder.records():
        same = {name: record[name] for name in record if name not in TIMINGS}
        if record["event"] not in without:
            records.append(same)
    return records


def _remove_last_record(folder):
    path = folder.path / "records.ndjson"
    *kept, _ = path.read_text().splitlines(keepends=True)
    path.write_text("".join(kept))


def test_every_record_names_the_machine_that_trained_its_epoch(folder, config, corpus, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "first")
    _train(folder, config, corpus, 2)
    # The checkpoint still has the second epoch.
    _remove_last_record(folder)
    monkeypatch.setattr("socket.gethostname", lambda: "second")
    _train(folder, config, corpus, 3)
    hosts = [record["host"] for record in folder.records()]
    assert hosts == ["first", "first", "second"]


def test_a_run_that_failed_in_its_last_epoch_may_finish_later(folder, config, corpus):
    with closing(Run(folder, config, corpus)) as run:
        next(run.train(1))
        run.end("failed", "no memory for the test")
    with closing(Run(folder, config, corpus)) as run:
        run.end("finished")
    (end,) = _records(folder, without=["epoch"])
    assert end["status"] == "finished"


def _truncate(path):
    path.write_bytes(path.read_bytes()[:100])


def _flip_a_weight(path):
    """Flip one bit of the largest tensor, which torch.load does not detect."""
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        tensors = [info for info in archive.infolist() if "/data/" in info.filename]
        largest = max(tensors, key=lambda info: info.file_size)
        value = archive.read(largest)
    data[data.index(value) + 3] ^= 1
    path.write_bytes(data)
    torch.load(path, weights_only=True)


def _of_another_run(path):
    state = read_checkpoint(path.read_bytes())
    other = checkpoint_bytes(state | {"run": "other"})
    path.write_bytes(other)


def _empty(path):
    path.write_bytes(b"")


def _first_note(folder):
    first, *_ = _records(folder, without=["epoch"])
    return first["reason"]


@pytest.mark.parametrize("damage", [_truncate, _flip_a_weight, _of_another_run, _empty])
@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_checkpoint_falls_back_to_the_previous_one(folder, config, corpus, damage, lost):
    _train(folder, config, corpus, 5)
    expected = _records(folder)
    damage(folder.checkpoint)
    if lost:
        _remove_last_record(folder)
    with closing(Run(folder, config, corpus)) as run:
        assert run.epoch == 4
        list(run.train(5))
    assert "damaged, going on from epoch 4" in _first_note(folder)
    assert _records(folder, without=["note"]) == expected
    lines = (folder.path / "records.ndjson").read_text().splitlines()
    # One more, the note.
    assert len(lines) == len(expected) + 1


def test_two_damaged_checkpoints_start_over_without_duplicate_records(folder, config, corpus):
    _train(folder, config, corpus, 4)
    expected = _records(folder)
    _truncate(folder.path / files.CHECKPOINT)
    _truncate(folder.path / files.PREVIOUS)
    _train(folder, config, corpus, 4)
    assert "damaged, starting over" in _first_note(folder)
    assert _records(folder, without=["note"]) == expected


def test_a_run_that_fell_back_has_two_good_checkpoints_one_epoch_later(folder, config, corpus):
    _train(folder, config, corpus, 3)
    _truncate(folder.checkpoint)
    _train(folder, config, corpus, 4)
    _truncate(folder.checkpoint)
    with closing(Run(folder, config, corpus)) as run:
        assert run.epoch == 3


def test_a_kill_between_the_two_renames_loses_no_epoch(folder, config, corpus):
    _train(folder, config, corpus, 3)
    expected = _records(folder)
    # The first rename is done, the second is not.
    folder.checkpoint.replace(folder.path / files.PREVIOUS)
    unfinished = folder.path / f".{files.CHECKPOINT}.4711"
    unfinished.write_bytes(b"half")
    with closing(Run(folder, config, corpus)) as run:
        assert run.epoch == 3
    assert _records(folder) == expected
    assert not unfinished.exists()


def test_a_partly_loaded_checkpoint_is_discarded(folder, config, corpus):
    _train(folder, config, corpus, 2)
    expected = _records(folder)
    state = torch.load(folder.checkpoint, weights_only=True)
    state["optimiser"] = {}  # fails after epoch and weights are loaded
    torch.save(state, folder.checkpoint)
    # Or the previous checkpoint would be used.
    (folder.path / files.PREVIOUS).unlink()
    (folder.path / "records.ndjson").unlink()
    _train(folder, config, corpus, 2)
    assert _records(folder, without=["note"]) == expected


def test_a_malicious_checkpoint_executes_no_code(folder, config, corpus, tmp_path):
    owned = tmp_path / "owned"

    class Bomb:
        def __reduce__(self):
            return open, (str(owned), "w")

    _train(folder, config, corpus, 1)
    # Reading it as a pickle would open a file.
    torch.save({"epoch": Bomb()}, folder.checkpoint, pickle_module=pickle)
    _train(folder, config, corpus, 1)
    assert not owned.exists()


def test_the_files_of_a_pack_get_each_event_once(folder, config, corpus):
    seen = []
    with closing(Run(folder, config, corpus)) as run:
        for is_flushed in (False, False, True):
            if is_flushed:
                run.flush()
            run.train_epoch(3)
            run.keep_epoch()
            seen += [record["epoch"] for record in run.pack_events()]
    assert seen == [1, 2, 3]


def test_testing_does_not_change_the_training(folder, config, corpus):
    with closing(Run(folder, config, corpus)) as run:
        list(run.train(3))
        run.test()
        list(run.train(5))
    untested = files.RunFolder(folder.path.parent / "untested")
    _train(untested, config, corpus, 5)
    assert _records(folder, without=["test"]) == _records(untested)


@pytest.fixture
def read_cell(tmp_path):
    """Write the config of a run with these fields of its GRU, and return the cell as it is read."""

    def read(numerics, **cell):
        model = {"name": "recurrent_lm", "width": 4, "cell": {"name": "gru"} | cell}
        run = {"model": model, "corpus": {}, "fingerprint": "", "numerics": numerics}
        (tmp_path / files.CONFIG).write_bytes(files.json_bytes(run))
        return read_model_config(files.RunFolder(tmp_path)).cell

    return read


def test_the_cuts_of_a_run_of_an_earlier_version_are_read(read_cell):
    cell = read_cell(files.NUMERICS, update="z_keeps", cuts=["reset", "reset_bias"])
    assert cell.cuts == {"reset"}


def test_a_run_of_other_numerics_is_not_opened(read_cell):
    with pytest.raises(UserError, match="numerics 1, this version has 2; use the version of lmzoo"):
        read_cell(files.NUMERICS - 1)


def test_a_run_whose_weights_have_the_other_sign_is_not_opened(read_cell):
    with pytest.raises(UserError, match="update=z_writes"):
        read_cell(files.NUMERICS, update="z_writes")
