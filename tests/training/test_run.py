"""A run on disk: whatever is cut off, no record is lost and none is doubled."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.errors import UserError
from lmzoo.recipe import Recipe
from lmzoo.record import RunFolder, identity
from lmzoo.run import Run, describe, owed

RECIPE = Recipe(batch=16)


@pytest.fixture
def config(corpus):
    model = zoo.config("DLM46", width=4, emission={"components": 3})
    return describe(model, RECIPE, corpus, {"name": "toy"}, seed=0)


@pytest.fixture
def folder(tmp_path, config):
    return RunFolder(tmp_path / config["run"])


def _events(folder):
    return [(r["event"], r["epoch"]) for r in folder.records()]


def _train(folder, config, corpus, budget):
    run = Run(folder, config, corpus)
    for _ in run.train(budget):
        pass
    run.close()


def _plain(folder):
    timed = ("seconds", "tokens_per_second")
    return [{k: v for k, v in r.items() if k not in timed} for r in folder.records()]


def test_a_record_that_the_checkpoint_has_and_the_file_lost_is_put_back(folder, config, corpus):
    _train(folder, config, corpus, 3)
    whole = _plain(folder)
    lines = (folder.path / "records.ndjson").read_text().splitlines(keepends=True)
    (folder.path / "records.ndjson").write_text("".join(lines[:-1]))  # died between the two writes
    _train(folder, config, corpus, 3)
    assert _plain(folder) == whole


@pytest.mark.parametrize("keep", [1, 9, 30])
def test_a_torn_last_line_is_mended(folder, config, corpus, keep):
    _train(folder, config, corpus, 2)
    path = folder.path / "records.ndjson"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:keep])
    _train(folder, config, corpus, 4)
    assert _events(folder) == [("epoch", e) for e in (1, 2, 3, 4)]
    assert len(path.read_text().splitlines()) == 4


def test_a_damaged_checkpoint_starts_over_says_so_and_doubles_nothing(folder, config, corpus):
    _train(folder, config, corpus, 2)
    whole = _plain(folder)
    folder.checkpoint.write_bytes(folder.checkpoint.read_bytes()[:100])
    _train(folder, config, corpus, 2)
    notes = [r for r in folder.records() if r["event"] == "note"]
    assert "damaged" in notes[0]["reason"]
    assert [r for r in _plain(folder) if r["event"] != "note"] == whole


def test_a_checkpoint_that_fits_only_in_part_leaves_nothing_behind(folder, config, corpus):
    _train(folder, config, corpus, 2)
    whole = _plain(folder)
    state = torch.load(folder.checkpoint, weights_only=True)
    state["optimiser"] = {}  # epoch and weights load, and then it fails
    torch.save(state, folder.checkpoint)
    (folder.path / "records.ndjson").unlink()
    _train(folder, config, corpus, 2)
    assert [r for r in _plain(folder) if r["event"] != "note"] == whole


def test_a_hostile_checkpoint_runs_nothing(folder, config, corpus, tmp_path):
    import pickle

    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    _train(folder, config, corpus, 1)
    torch.save({"epoch": Bomb()}, folder.checkpoint, pickle_module=pickle)
    _train(folder, config, corpus, 1)
    assert not (tmp_path / "owned").exists()


def test_running_it_twice_is_a_no_op(folder, config, corpus):
    _train(folder, config, corpus, 3)
    before = (folder.path / "records.ndjson").read_bytes()
    _train(folder, config, corpus, 3)
    assert (folder.path / "records.ndjson").read_bytes() == before


def test_what_is_owed(folder, config, corpus):
    assert owed(folder, 2, test=False)
    run = Run(folder, config, corpus)
    list(run.train(2))
    run.end("finished")
    assert not owed(folder, 2, test=False)
    assert owed(folder, 2, test=True)
    run.test()
    assert not owed(folder, 2, test=True)
    assert owed(folder, 3, test=False)
    run.close()


def test_a_run_that_failed_may_still_finish(folder, config, corpus):
    _train(folder, config, corpus, 2)
    folder.append({"event": "end", "epoch": 2, "status": "failed", "reason": "died"})
    assert owed(folder, 2, test=False)
    run = Run(folder, config, corpus)
    run.end("finished")
    run.close()
    assert not owed(folder, 2, test=False)


def test_the_test_is_scored_with_the_best_weights_and_training_goes_on(folder, config, corpus):
    run = Run(folder, config, corpus)
    list(run.train(3))
    run.test()
    list(run.train(5))
    run.close()
    other = RunFolder(folder.path.parent / "undisturbed")
    _train(other, config, corpus, 5)
    assert [r for r in _plain(folder) if r["event"] == "epoch"] == _plain(other)


def test_two_processes_cannot_hold_one_run(folder, config, corpus):
    run = Run(folder, config, corpus)
    with pytest.raises(UserError, match="in use by another process"):
        Run(folder, config, corpus)
    run.close()
    Run(folder, config, corpus).close()


def test_identity_is_of_what_decides_the_result_and_of_nothing_else(config):
    assert identity({**config, "study": "x", "parameters": -1}) == config["run"]
    for key in ("seed", "recipe", "model", "fingerprint"):
        assert identity({**config, key: "other"}) != config["run"]
