"""Numbers in the pages that follow from the code are those of the code."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from lmzoo.data.corpus import CORPORA, open_corpus
from lmzoo.lab.cli.sweep import find_studies
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study import PARALLEL_RUNS, Study
from lmzoo.lab.study.study_store import ReadOnlyStudyStore
from lmzoo.trainables.resolve import corpus_config, resolve
from tests.docs.pages import blocks

ROOT = Path(__file__).parents[1]


def runs_of(study: Study, folder: Path) -> int:
    """Return the number of runs that a study trains at most."""
    fields = corpus_config(study, study.fields)
    corpus = open_corpus(fields)
    store = ReadOnlyStudyStore(folder / "study")
    points = resolve(study, corpus, fields)
    planner = Planner(study, points, store)
    return sum(count for _, count, _ in planner.pending())


def study_of(path: Path) -> Study:
    return runpy.run_path(str(path))["STUDY"]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_runs_of_make_sweep(page, tmp_path):
    text = (ROOT / page).read_text()
    study = study_of(ROOT / "sweeps/gru_ablation.py")
    (number,) = re.findall(r"`make sweep` trains ([\d,]+)", text)
    assert int(number) == runs_of(study, tmp_path)


def test_the_runs_of_the_first_tutorial(tmp_path):
    page = ROOT / "docs/tutorials/first_ablation.md"
    # The first file that the reader writes is the study.
    file = next(block.code for block in blocks(page) if block.title)
    script = tmp_path / "memory.py"
    script.write_text(file)
    runs = runs_of(study_of(script), tmp_path)
    assert f"trains at most {runs} runs" in page.read_text()


@pytest.mark.parametrize("page", ["docs/how/sweep.md", "docs/tutorials/cluster.md"])
def test_the_runs_that_start_together(page):
    text = (ROOT / page).read_text()
    said = re.findall(r"⌈(\d+) / points⌉|about (\d+) tune runs", text)
    # One of the two forms is empty.
    numbers = {first + second for first, second in said}
    assert numbers == {str(PARALLEL_RUNS)}


def test_the_lowest_versions_are_the_bounds():
    """`make lowest` tests what `pyproject.toml` allows."""
    text = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = text["project"]
    used = project["dependencies"] + text["build-system"]["requires"]
    for extra in INSTALLED:
        used += project["optional-dependencies"][extra]
    bounds = re.findall(r"^([\w-]+).*?>=([\d.]+)", "\n".join(used), re.MULTILINE)
    lowest = (ROOT / "constraints-lowest.txt").read_text()
    pins = re.findall(r"^([\w-]+)==(.+)$", lowest, re.MULTILINE)
    assert set(pins) == set(bounds)


INSTALLED = ("zoo", "sweeps", "bpe", "cluster", "figures")
"""Extras that a user installs. Those of trackers are tested with the newest version only."""


def named_files(path: Path) -> set[str]:
    """Files of this repository that a page or a module names; placeholders have capitals."""
    text = path.read_text()
    # A page names files of all kinds by their paths, a module those of Python.
    if path.suffix == ".md":
        folders = "lmzoo|tests|tools|benchmarks|sweeps|drills|docs|clusters|analysis"
        return set(re.findall(rf"`((?:{folders})/[a-z_/\d]+\.\w+)`", text))
    paths = re.findall(r"`([a-z_/\d]+\.py)`", text)
    return {Path(path).name for path in paths}


def test_the_files_that_pages_and_docstrings_name_exist():
    names = set()
    for top in ("lmzoo", "tests", "benchmarks"):
        names |= {path.name for path in ROOT.glob(f"{top}/**/*.py")}
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    paths += ROOT.glob("docs/*/*.md")
    paths += ROOT.glob("lmzoo/**/*.py")
    for path in paths:
        # Cells and corpora also name files of the authors, decisions those of the history.
        if {"cells", "data", "decisions"}.isdisjoint(path.parts):
            for file in named_files(path):
                is_there = file in names or (ROOT / file).exists()
                assert is_there, path


def test_the_studies_of_the_results_pages_are_there():
    published = runpy.run_path(str(ROOT / "tools/published_studies.py"))["STUDIES"]
    for script, corpus, *_ in published.values():
        kind = corpus.partition(":")[0]
        assert kind in CORPORA
        # A script of several studies is followed by the name of one.
        file, *name = script.split()
        studies = find_studies(str(ROOT / f"sweeps/{file}.py"))
        assert set(name) <= {study.name for study in studies}
