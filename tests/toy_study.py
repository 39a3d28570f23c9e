"""A corpus of a few sentences, and a study small enough to run without Ray."""

import dataclasses
from contextlib import closing
from pathlib import Path

import pytest

from lmzoo import Point, Study
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.trainables.resolve import corpus_config, resolve
from tests.lab.sweep.local_sweep import sweep

WORDS = ("a", "man", "dog", "runs", "sits", "in", "the", "park", "two", "red")


@pytest.fixture(scope="session")
def sentences(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "sentences.txt"
    lines = []
    for i in range(60):
        # Of three to six words.
        words = [WORDS[(i * j + i) % len(WORDS)] for j in range(3 + i % 4)]
        lines.append(" ".join(words))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def corpus_fields(sentences: Path) -> dict:
    return corpus_config(toy_study(sentences), {"corpus.length": 10})


@pytest.fixture(scope="session")
def corpus(corpus_fields: dict):
    return open_corpus(corpus_fields)


@pytest.fixture
def study(sentences: Path) -> Study:
    return toy_study(sentences)


@pytest.fixture
def planner(study, corpus, corpus_fields, tmp_path):
    """The planner of three points without the baselines; two settings of each are ready."""
    points = [p for p in resolve(study, corpus, corpus_fields) if not p.baseline]
    with closing(StudyStore(tmp_path)) as store:
        yield Planner(study, points, store)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, corpus, corpus_fields, sentences) -> Path:
    """The store of an undisturbed sweep of the toy study with one run at a time."""
    path = tmp_path_factory.mktemp("store") / "toy"
    assert sweep(toy_study(sentences), corpus, corpus_fields, path, slots=1)
    return path


def small_study(sentences: Path) -> Study:
    """Return the toy study with two points and two settings each."""
    study = toy_study(sentences)
    return dataclasses.replace(study, points=study.points[:2], samples=2)


def toy_study(sentences: Path) -> Study:
    sizes = {"model.width": 4, "model.emission.components": 3}
    return Study(
        name="toy",
        question="Does [it] [/work]?",
        points=(
            Point("wild type", "DLM46"),
            Point("cut 4", "DLM46", {"cell.cuts": [4]}),
            Point("cut 3,2,4,5", "DLM46", {"cell.cuts": [3, 2, 4, 5]}),
            Point("cut 2,7", "DLM46", {"cell.cuts": [2, 7]}),
        ),
        corpus=f"text:{sentences}",
        fields={"corpus.length": 10, "recipe.batch": 16, **sizes},
        epochs=4,
        samples=4,
        seeds=2,
        grace=1,
    )
