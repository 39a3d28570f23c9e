"""What decides a run's identity, and facts about its model: matrix products from its equations."""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from lmzoo import zoo
from lmzoo.base import environment as versions
from lmzoo.base.environment import COMMIT, find_commit
from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.store import records
from lmzoo.lab.store.records import json_bytes
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.train import run as run_module
from lmzoo.train.flops import matrix_flops
from lmzoo.train.recipe import Recipe

SPEC = {"name": "captions", "train": 60, "valid": 20, "test": 20}


def config(seed: int = 0) -> dict:
    corpus = open_corpus(SPEC, None)
    return run_module.identity_config(zoo.config("DLM46"), Recipe(), corpus, SPEC, seed)


@pytest.fixture(autouse=True)
def fresh_version():
    versions.code_version.cache_clear()
    versions._fixed.cache_clear()
    yield
    versions.code_version.cache_clear()
    versions._fixed.cache_clear()


def test_other_numerics_are_another_run(monkeypatch):
    before = config()
    monkeypatch.setattr(run_module, "NUMERICS", before["numerics"] + 1)
    assert config()["run"] != before["run"]


def test_the_code_is_recorded_and_does_not_decide_the_identity(monkeypatch):
    before = config()
    monkeypatch.setenv(COMMIT, "f00d+")
    versions.code_version.cache_clear()
    versions._fixed.cache_clear()
    after = config()
    assert after["run"] == before["run"]
    assert after["environment"] == {**before["environment"], "commit": "f00d+"}
    assert after["environment"]["lmzoo"]


@pytest.mark.parametrize(
    ("name", "version", "value"), [("schema", "READABLE", (99,)), ("numerics", "NUMERICS", 99)]
)
def test_a_store_of_another_version_is_refused_and_stays(
    tmp_path, monkeypatch, name, version, value
):
    with closing(StudyStore(tmp_path / "study")) as store:
        store.write_study({"name": "study"})
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(records, version, value)
    with pytest.raises(UserError, match=rf"study has {name} version \d+.* another --out"):
        StudyStore(tmp_path / "study")
    assert files == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_store_without_numerics_is_refused(tmp_path):
    (tmp_path / "study.json").write_bytes(json_bytes({"schema": 1, "name": "study"}))
    with pytest.raises(UserError, match="has schema version 1"):
        StudyStore(tmp_path)


def test_a_commit_has_a_plus_if_tracked_files_have_changes(tmp_path, monkeypatch):
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.check_output(command, cwd=tmp_path, text=True).strip()

    assert find_commit(tmp_path) == ""  # outside a clone
    (tmp_path / ".git").mkdir()
    assert find_commit(tmp_path) == ""  # git fails
    git("init", "-q")
    (tmp_path / "code.py").write_text("1")
    git("add", "code.py")
    git("commit", "-q", "-m", "first")
    git("tag", "-a", "v1", "-m", "a tag")
    assert git("rev-parse", "HEAD").startswith(find_commit(tmp_path))
    assert len(find_commit(tmp_path)) >= 4
    (tmp_path / "new.txt").write_text("not tracked")
    assert not find_commit(tmp_path).endswith("+")
    (tmp_path / "code.py").write_text("2")
    assert find_commit(tmp_path).endswith("+")
    (tmp_path / "inside").mkdir()
    assert find_commit(tmp_path / "inside") == ""  # a package installed below another repository
    assert find_commit(tmp_path / "inside", above=True).endswith("+")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_commit(tmp_path) == ""  # there is no git


def test_git_runs_once_per_process(monkeypatch):
    calls = []
    monkeypatch.setattr(versions, "find_commit", lambda root, **_: calls.append(root) or "1234567")
    config()
    for seed in range(50):
        assert config(seed)["environment"]["commit"] == "1234567"
    assert calls == [versions.ROOT, Path.cwd()]


def test_the_products_of_an_lstm_are_those_of_its_equations():
    """Four gates read x and h, and a tied softmax has V logits."""
    vocab = 30
    width = 8
    task = Task(vocab=vocab, length=12, ends=True)
    model = zoo.build(zoo.config("lstm_lm", width=width), task)
    assert matrix_flops(model, task) == 2 * (8 * width * width + width * vocab)


@pytest.mark.parametrize(("row", "grows"), [("gru", False), ("transformer_decoder", True)])
def test_attention_costs_more_at_a_greater_length_and_a_finite_state_does_not(row, grows):
    tasks = [Task(vocab=30, length=length, ends=True) for length in (25, 60)]
    short, long = (matrix_flops(zoo.build(zoo.config(row, width=8), own), own) for own in tasks)
    assert (short < long) is grows
    assert short <= long
