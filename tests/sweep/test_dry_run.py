"""A dry run looks at a store and leaves it as it is, whoever holds it and whatever is owed."""

import dataclasses
import json
import shutil
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lmzoo.store.records import RECORDS, RunFolder
from lmzoo.sweep import main
from lmzoo.sweep.baselines import BASELINES
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import ReadOnlyStudyStore, StudyStore

from .byhand import sweep
from .conftest import small_study


@pytest.fixture(scope="module")
def study(sentences):
    return dataclasses.replace(small_study(sentences), samples=4)


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory, study, corpus, corpus_fields) -> Path:
    """A sweep that died in its second generation."""
    path = tmp_path_factory.mktemp("cut") / "toy-text"
    assert not sweep(study, corpus, corpus_fields, path, slots=3, steps=28)
    return path


@pytest.fixture
def store(cut_off, tmp_path) -> Path:
    return shutil.copytree(cut_off, tmp_path / "runs" / "toy-text")


@pytest.fixture
def asked(study, tmp_path, monkeypatch, capsys):
    """(point, runs, epochs) that a dry run of the study with more options tells."""

    def ask(*options: str) -> list[tuple[str, int, int]]:
        command = ["study", "--dry-run", "--json", "--storage", str(tmp_path / "runs"), *options]
        monkeypatch.setattr(sys, "argv", command)
        monkeypatch.setattr(sys.modules["lmzoo.sweep.main"], "seconds_per_epoch", lambda *_: 0.0)
        with pytest.raises(SystemExit) as stop:
            main(study)
        told = capsys.readouterr()
        assert not stop.value.code, told.err
        rows = json.loads(told.out)["points"]
        return [(row["point"], row["runs"], row["epochs"]) for row in rows]

    return ask


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("more", [(), ("--epochs", "9"), ("--samples", "6"), ("--seeds", "3")])
def test_a_store_is_the_same_after_it(store, asked, more):
    before = everything(store)
    assert asked(*more)
    assert everything(store) == before


def test_a_run_cut_off_where_it_will_be_pruned_keeps_its_weights(
    study, corpus, corpus_fields, store
):
    """The sweep itself prunes it when it starts again."""
    pruned = next(p for p in store.glob(f"*/{RECORDS}") if '"pruned"' in p.read_text())
    lines = [line for line in pruned.read_text().splitlines(keepends=True) if "pruned" not in line]
    pruned.write_text("".join(lines))
    weights = RunFolder(pruned.parent).checkpoint
    weights.touch()
    before, points = everything(store), resolve(study, corpus, corpus_fields)
    Planner(study, points, corpus, ReadOnlyStudyStore(store))
    assert everything(store) == before
    with closing(StudyStore(store)) as held:
        Planner(study, points, corpus, held)
    assert not weights.exists()
    assert '"pruned"' in pruned.read_text()


def test_it_tells_what_the_sweep_itself_would_do(study, corpus, corpus_fields, store, asked):
    told = asked()
    with closing(StudyStore(store)) as held:
        agenda = Planner(study, resolve(study, corpus, corpus_fields), corpus, held)
        assert [(point.point.label, *rest) for point, *rest in agenda.owed()] == told != []
        assert asked() == told, "it may be asked while the sweep runs"


def test_what_an_earlier_dry_run_left_is_read(study, corpus, corpus_fields, tmp_path, asked):
    """It wrote the study and its first settings."""
    with closing(StudyStore(tmp_path / "runs" / "toy-text")) as held:
        Planner(study, resolve(study, corpus, corpus_fields), corpus, held)
    runs = [runs for _, runs, _ in asked()]
    assert runs == [study.samples + study.seeds] * 2 + [study.seeds] * len(BASELINES)
