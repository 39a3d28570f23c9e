"""A dry run reads a store without changing it, also while a sweep uses the store."""

import dataclasses
import json
import shutil
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lmzoo import main
from lmzoo.lab.store.records import RECORDS, RunFolder
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import ReadOnlyStudyStore, StudyStore
from lmzoo.trainables.resolve import resolve, store_name
from tests.toy_study import small_study

from .local_sweep import sweep


@pytest.fixture(scope="module")
def study(sentences):
    return dataclasses.replace(small_study(sentences), samples=4)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, study, corpus, corpus_fields) -> Path:
    """The store of a sweep that died in its second generation."""
    path = tmp_path_factory.mktemp("interrupted") / "toy-text"
    assert not sweep(study, corpus, corpus_fields, path, slots=3, steps=28)
    return path


@pytest.fixture
def store(interrupted, corpus, corpus_fields, tmp_path) -> Path:
    name = store_name("toy", corpus_fields, corpus.fingerprint)
    return shutil.copytree(interrupted, tmp_path / "runs" / name)


@pytest.fixture
def dry_run(study, tmp_path, monkeypatch, capsys):
    """Runs the study's command line with --dry-run; returns (point, runs, epochs) of each point."""

    def run(*options: str) -> list[tuple[str, int, int]]:
        command = ["study", "--dry-run", "--json", "--out", str(tmp_path / "runs")]
        monkeypatch.setattr(sys, "argv", command + list(options))
        monkeypatch.setattr("lmzoo.trainables.rows.RowPoint.seconds_per_epoch", lambda *_: 0.0)
        with pytest.raises(SystemExit) as stop:
            main(study)
        output = capsys.readouterr()
        # No code is success, too.
        assert not stop.value.code, output.err
        rows = json.loads(output.out)["points"]
        return [(row["point"], row["runs"], row["epochs"]) for row in rows]

    return run


def read_files(folder: Path) -> dict[str, bytes]:
    files = {}
    for path in folder.rglob("*"):
        if path.is_file():
            files[str(path.relative_to(folder))] = path.read_bytes()
    return files


@pytest.fixture
def interrupted_run(store) -> RunFolder:
    """A run that a sweep was about to prune when it was interrupted."""
    pruned = next(path for path in store.glob(f"*/{RECORDS}") if '"pruned"' in path.read_text())
    lines = pruned.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "pruned" not in line]
    pruned.write_text("".join(kept))
    folder = RunFolder(pruned.parent)
    folder.checkpoint.touch()
    return folder


def test_a_dry_run_does_not_prune_an_interrupted_run(
    study, corpus, corpus_fields, store, interrupted_run
):
    before = read_files(store)
    points = resolve(study, corpus, corpus_fields)
    Planner(study, points, ReadOnlyStudyStore(store))
    assert read_files(store) == before
    # The sweep itself prunes the run, and deletes its checkpoint, when it starts again.
    with closing(StudyStore(store)) as locked:
        Planner(study, points, locked)
    *_, last = interrupted_run.records()
    assert not interrupted_run.checkpoint.exists()
    assert last["status"] == "pruned"


def test_a_dry_run_reports_the_pending_work_of_the_sweep_and_changes_nothing(
    study, corpus, corpus_fields, store, dry_run
):
    before = read_files(store)
    rows = dry_run()
    larger = dry_run("--epochs", "9", "--samples", "6", "--seeds", "3")
    assert larger != rows
    assert read_files(store) == before
    points = resolve(study, corpus, corpus_fields)
    with closing(StudyStore(store)) as locked:
        pending = []
        for planned, runs, epochs in Planner(study, points, locked).pending():
            pending.append((planned.point.display_label, runs, epochs))
        assert pending == rows != []
        assert dry_run() == rows, "a dry run must work while the store is locked"
