"""A corpus of a few sentences, and a study small enough to run by hand."""

import dataclasses
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from lmzoo.data.open import open_corpus
from lmzoo.sweep import Point, Study
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore

from .processes import ROOT, end, start

WORDS = ("a", "man", "dog", "runs", "sits", "in", "the", "park", "two", "red")


@pytest.fixture(scope="session")
def sentences(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "sentences.txt"
    lines = [" ".join(WORDS[(i * j + i) % len(WORDS)] for j in range(3 + i % 4)) for i in range(60)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def corpus_fields(sentences: Path) -> dict:
    from lmzoo.sweep.resolve import corpus_config

    return corpus_config(_study(sentences), {"corpus.length": 10})


@pytest.fixture(scope="session")
def corpus(corpus_fields: dict):
    return open_corpus(corpus_fields)


@pytest.fixture
def study(sentences: Path) -> Study:
    return _study(sentences)


@pytest.fixture
def tuned(study, corpus, corpus_fields, tmp_path):
    """The agenda of the points that are no floors: three, of two settings each."""
    points = [p for p in resolve(study, corpus, corpus_fields) if not p.floor]
    with closing(StudyStore(tmp_path)) as store:
        yield Planner(study, points, corpus, store)


@pytest.fixture
def given(monkeypatch):
    """What trials gave away, by trial: in a dictionary here, as there is no Ray."""
    from lmzoo.sweep import (
        reassign as handover,
    )  # not above: the toy script reads this file before Ray

    told: dict[str, set[str]] = {}
    monkeypatch.setattr(handover, "reassigned", lambda trial: told.get(trial, set()))
    monkeypatch.setattr(
        handover, "give_away", lambda trial, runs: told.setdefault(trial, set()).update(runs)
    )
    monkeypatch.setattr(handover, "forget", lambda trial: told.pop(trial, None))
    return told


@pytest.fixture
def script(tmp_path, sentences, monkeypatch) -> Path:
    """The study as a script, which also a process outside this folder can run."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "toy.py"
    path.write_text(
        "from pathlib import Path\n"
        "from lmzoo.sweep import main\n"
        "from tests.sweep.conftest import _study\n"
        "if __name__ == '__main__':\n"
        f"    main(_study(Path({str(sentences)!r})))\n"
    )
    return path


@pytest.fixture
def sweeping(script, tmp_path):
    """Start the script with more options; its records go below `runs`, its console to pipes."""
    started: list[subprocess.Popen[str]] = []

    def begin(*options: str, storage: str = "") -> subprocess.Popen[str]:
        where = storage or str(tmp_path / "runs")
        started.append(start(script, "--storage", where, "--json", "--fuse", "off", *options))
        return started[-1]

    yield begin
    for process in started:
        end(process)


def small_study(sentences: Path) -> Study:
    """Two points of it, and fewer settings."""
    whole = _study(sentences)
    return dataclasses.replace(whole, points=whole.points[:2], samples=2)


def _study(sentences: Path) -> Study:
    return Study(
        name="toy",
        question="Does it work?",
        points=(
            Point("wild type", "DLM46"),
            Point("cut 4", "DLM46", {"cell.cuts": [4]}),
            Point("cut 3,2,4,5", "DLM46", {"cell.cuts": [3, 2, 4, 5]}),
            Point("cut 2,7", "DLM46", {"cell.cuts": [2, 7]}),
        ),
        corpus=f"text:{sentences}",
        fields={
            "corpus.length": 10,
            "model.width": 4,
            "model.emission.components": 3,
            "recipe.batch": 16,
        },
        epochs=4,
        samples=4,
        seeds=2,
        grace=1,
    )
