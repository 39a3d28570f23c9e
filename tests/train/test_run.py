"""A run on disk: an interruption loses no record and duplicates none."""

import io
import pickle
import zipfile

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
    run = Run(folder, config, corpus)
    for _ in run.train(budget):
        pass
    run.close()


def _records(folder):
    timings = ("seconds", "tokens_per_second", "time", "environment")
    return [{k: v for k, v in r.items() if k not in timings} for r in folder.records()]


def _remove_last_record(folder):
    path = folder.path / "records.ndjson"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def test_every_record_names_the_machine_that_trained_its_epoch(folder, config, corpus, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "first")
    _train(folder, config, corpus, 2)
    _remove_last_record(folder)
    monkeypatch.setattr("socket.gethostname", lambda: "second")
    _train(folder, config, corpus, 3)
    assert [r["host"] for r in folder.records()] == ["first", "first", "second"]


def test_a_run_that_failed_in_its_last_epoch_may_finish_later(folder, config, corpus):
    run = Run(folder, config, corpus)
    next(run.train(1))
    run.end("failed", "no memory for the test")
    run.close()
    run = Run(folder, config, corpus)
    run.end("finished")
    run.close()
    assert [r["status"] for r in folder.records() if r["event"] == "end"] == ["finished"]


def _truncate(path):
    path.write_bytes(path.read_bytes()[:100])


def _flip_a_weight(path):
    """Flip one bit of the largest tensor, which torch.load does not detect."""
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        info = max(archive.infolist(), key=lambda i: i.file_size if "/data/" in i.filename else 0)
        value = archive.read(info)
    data[data.index(value) + 3] ^= 1
    path.write_bytes(data)
    torch.load(path, weights_only=True)


def _of_another_run(path):
    path.write_bytes(checkpoint_bytes({**read_checkpoint(path.read_bytes()), "run": "other"}))


def _notes(folder):
    return [r["reason"] for r in folder.records() if r["event"] == "note"]


@pytest.mark.parametrize(
    "damage", [_truncate, _flip_a_weight, _of_another_run, lambda path: path.write_bytes(b"")]
)
@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_checkpoint_falls_back_to_the_previous_one(folder, config, corpus, damage, lost):
    _train(folder, config, corpus, 5)
    expected = _records(folder)
    damage(folder.checkpoint)
    if lost:
        _remove_last_record(folder)
    run = Run(folder, config, corpus)
    assert run.epoch == 4
    list(run.train(5))
    run.close()
    assert "damaged, going on from epoch 4" in _notes(folder)[0]
    assert [r for r in _records(folder) if r["event"] != "note"] == expected
    lines = (folder.path / "records.ndjson").read_text().splitlines()
    assert len(lines) == len(expected) + 1


def test_two_damaged_checkpoints_start_over_without_duplicate_records(folder, config, corpus):
    _train(folder, config, corpus, 4)
    expected = _records(folder)
    for name in (files.CHECKPOINT, files.PREVIOUS):
        _truncate(folder.path / name)
    _train(folder, config, corpus, 4)
    assert "damaged, starting over" in _notes(folder)[0]
    assert [r for r in _records(folder) if r["event"] != "note"] == expected


def test_a_run_that_fell_back_has_two_good_checkpoints_one_epoch_later(folder, config, corpus):
    _train(folder, config, corpus, 3)
    _truncate(folder.checkpoint)
    _train(folder, config, corpus, 4)
    _truncate(folder.checkpoint)
    run = Run(folder, config, corpus)
    assert run.epoch == 3
    run.close()


def test_a_kill_between_the_two_renames_loses_no_epoch(folder, config, corpus):
    _train(folder, config, corpus, 3)
    expected = _records(folder)
    folder.checkpoint.replace(folder.path / files.PREVIOUS)
    (folder.path / f".{files.CHECKPOINT}.4711").write_bytes(b"half")
    run = Run(folder, config, corpus)
    assert run.epoch == 3
    run.close()
    assert _records(folder) == expected
    assert not list(folder.path.glob(f".{files.CHECKPOINT}.*"))


def test_a_partly_loaded_checkpoint_is_discarded(folder, config, corpus):
    _train(folder, config, corpus, 2)
    expected = _records(folder)
    state = torch.load(folder.checkpoint, weights_only=True)
    state["optimiser"] = {}  # fails after epoch and weights are loaded
    torch.save(state, folder.checkpoint)
    (folder.path / files.PREVIOUS).unlink()
    (folder.path / "records.ndjson").unlink()
    _train(folder, config, corpus, 2)
    assert [r for r in _records(folder) if r["event"] != "note"] == expected


def test_a_malicious_checkpoint_executes_no_code(folder, config, corpus, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    _train(folder, config, corpus, 1)
    torch.save({"epoch": Bomb()}, folder.checkpoint, pickle_module=pickle)
    _train(folder, config, corpus, 1)
    assert not (tmp_path / "owned").exists()


def test_the_files_of_a_pack_get_each_event_once(folder, config, corpus):
    run = Run(folder, config, corpus)
    seen = []
    for is_flushed in (False, False, True):
        if is_flushed:
            run.flush()
        run.train_epoch(3)
        run.keep_epoch()
        seen += [record["epoch"] for record in run.pack_events()]
    run.close()
    assert seen == [1, 2, 3]


def test_testing_does_not_change_the_training(folder, config, corpus):
    run = Run(folder, config, corpus)
    list(run.train(3))
    run.test()
    list(run.train(5))
    run.close()
    untested = files.RunFolder(folder.path.parent / "untested")
    _train(untested, config, corpus, 5)
    assert [r for r in _records(folder) if r["event"] == "epoch"] == _records(untested)


def test_runs_of_other_numerics_and_runs_whose_settings_are_read_as_others_are_not_opened(tmp_path):
    def read(numerics, cell):
        model = {"name": "recurrent_lm", "width": 4, "cell": {"name": "gru", **cell}}
        run = {"model": model, "corpus": {}, "fingerprint": "", "numerics": numerics}
        (tmp_path / files.CONFIG).write_bytes(files.json_bytes(run))
        return read_model_config(files.RunFolder(tmp_path))

    cuts = {"cuts": ["reset", "reset_bias"]}
    assert read(files.NUMERICS, {"update": "z_keeps", **cuts}).cell.cuts == {"reset"}
    with pytest.raises(UserError, match="numerics 1, this version has 2; use the version of lmzoo"):
        read(files.NUMERICS - 1, cuts)
    with pytest.raises(UserError, match="update=z_writes"):  # the weights of z have the other sign
        read(files.NUMERICS, {"update": "z_writes"})
