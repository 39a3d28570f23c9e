"""Numbers in the pages that follow from the code are those of the code."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from lmzoo.data.corpus import open_corpus
from lmzoo.study.planner import Planner
from lmzoo.study.study import PARALLEL_RUNS
from lmzoo.study.study_store import ReadOnlyStudyStore
from lmzoo.trainables.resolve import corpus_config, resolve

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The number of runs that `make sweep` trains."""
    study = runpy.run_path(str(ROOT / "sweeps/gru_ablation.py"))["STUDY"]
    fields = corpus_config(study, study.fields)
    corpus = open_corpus(fields)
    store = ReadOnlyStudyStore(tmp_path_factory.mktemp("store") / "study")
    planner = Planner(study, resolve(study, corpus, fields), store)
    return sum(count for _, count, _ in planner.pending())


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_runs_of_make_sweep(page: str, runs: int) -> None:
    text = (ROOT / page).read_text()
    numbers = re.findall(r"`make sweep` trains ([\d,]+)", text)
    assert [*map(int, numbers)] == [runs]


@pytest.mark.parametrize(
    ("page", "pattern"),
    [
        ("docs/how/sweep.md", r"⌈(\d+) / points⌉"),
        ("docs/tutorials/cluster.md", r"starts about (\d+) tune runs together"),
    ],
)
def test_the_runs_that_start_together(page: str, pattern: str) -> None:
    assert re.findall(pattern, (ROOT / page).read_text()) == [str(PARALLEL_RUNS)]


def test_the_lowest_versions_are_the_bounds() -> None:
    """`make lowest` tests what `pyproject.toml` allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    used = [*project["dependencies"], *(x for name in INSTALLED for x in extras[name])]
    bounds = dict(match.groups() for x in used if (match := re.match(r"([\w-]+).*?>=([\d.]+)", x)))
    pins = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    assert dict(line.split("==") for line in pins if not line.startswith("#")) == bounds


INSTALLED = ("sweeps", "bpe", "cluster", "figures", "analysis")
"""Extras that a user installs. Those of trackers are tested with the newest version only."""
