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
    corpus = open_corpus(SPEC)
    model = zoo.config("DLM46")
    return run_module.identity_config(model, Recipe(), corpus, SPEC, seed)


def forget_version():
    """Find the commit again, which is found once in a process."""
    versions.code_version.cache_clear()
    versions._fixed.cache_clear()


@pytest.fixture(autouse=True)
def fresh_version():
    forget_version()
    yield
    forget_version()


def test_other_numerics_are_another_run(monkeypatch):
    before = config()
    monkeypatch.setattr(run_module, "NUMERICS", before["numerics"] + 1)
    assert config()["run"] != before["run"]


def test_the_code_is_recorded_and_does_not_decide_the_identity(monkeypatch):
    before = config()
    # Copied source does not know its commit, so a user gives it.
    monkeypatch.setenv(COMMIT, "f00d+")
    forget_version()
    after = config()
    environment = after["environment"]
    assert after["run"] == before["run"]
    assert environment == before["environment"] | {"commit": "f00d+"}
    assert environment["lmzoo"]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


VERSIONS = {"schema": ("READABLE", (99,)), "numerics": ("NUMERICS", 99)}


@pytest.mark.parametrize("name", VERSIONS)
def test_a_store_of_another_version_is_refused_and_stays(tmp_path, monkeypatch, name):
    with closing(StudyStore(tmp_path / "study")) as store:
        store.write_study({"name": "study"})
    before = contents(tmp_path)
    constant, value = VERSIONS[name]
    monkeypatch.setattr(records, constant, value)
    with pytest.raises(UserError, match=rf"study has {name} version \d+.* another --out"):
        StudyStore(tmp_path / "study")
    assert contents(tmp_path) == before


def test_a_store_without_numerics_is_refused(tmp_path):
    (tmp_path / "study.json").write_bytes(json_bytes({"schema": 1, "name": "study"}))
    with pytest.raises(UserError, match="has schema version 1"):
        StudyStore(tmp_path)


GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]


def git(folder: Path, arguments: str) -> str:
    command = GIT + arguments.split()
    return subprocess.check_output(command, cwd=folder, text=True).strip()


@pytest.fixture
def clone(tmp_path) -> Path:
    """A repository with a commit, which has a tag."""
    git(tmp_path, "init -q")
    (tmp_path / "code.py").write_text("1")
    git(tmp_path, "add code.py")
    git(tmp_path, "commit -q -m first")
    git(tmp_path, "tag -a v1 -m first")
    return tmp_path


def test_outside_a_clone_there_is_no_commit(tmp_path):
    assert find_commit(tmp_path) == ""
    (tmp_path / ".git").mkdir()
    # Now git fails.
    assert find_commit(tmp_path) == ""


def test_a_commit_is_short(clone):
    commit = find_commit(clone)
    assert git(clone, "rev-parse HEAD").startswith(commit)
    assert len(commit) >= 4


def test_a_commit_has_a_plus_if_tracked_files_have_changes(clone):
    (clone / "new.txt").write_text("not tracked")
    assert not find_commit(clone).endswith("+")
    (clone / "code.py").write_text("2")
    assert find_commit(clone).endswith("+")


def test_a_package_installed_below_another_repository_has_no_commit(clone):
    inside = clone / "inside"
    inside.mkdir()
    assert find_commit(inside) == ""
    assert find_commit(inside, above=True) == find_commit(clone)


def test_without_git_there_is_no_commit(clone, monkeypatch):
    monkeypatch.setenv("PATH", str(clone))
    assert find_commit(clone) == ""


def test_git_runs_once_per_process(monkeypatch):
    calls = []

    def find(root, **_):
        calls.append(root)
        return "1234567"

    monkeypatch.setattr(versions, "find_commit", find)
    config()
    for seed in range(50):
        assert config(seed)["environment"]["commit"] == "1234567"
    # The package and the folder of the user.
    assert calls == [versions.ROOT, Path.cwd()]


def test_the_products_of_an_lstm_are_those_of_its_equations():
    # Four gates read x and h, and a tied softmax has V logits.
    gates = 4 * WIDTH * (WIDTH + WIDTH)
    logits = WIDTH * VOCAB
    assert flops_of("lstm_lm", 12) == 2 * (gates + logits)


def test_attention_costs_more_at_a_greater_length():
    assert flops_of("transformer_decoder", 60) > flops_of("transformer_decoder", 25)


def test_a_finite_state_costs_the_same_at_every_length():
    assert flops_of("gru", 60) == flops_of("gru", 25)


VOCAB = 30
WIDTH = 8


def flops_of(row: str, length: int) -> float:
    task = Task(vocab=VOCAB, length=length, ends=True)
    config = zoo.config(row, width=WIDTH)
    return matrix_flops(zoo.build(config, task), task)
