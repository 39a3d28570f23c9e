"""Every page with code runs as it is printed."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_lmzoo import run_lmzoo
from tests.docs.pages import ROOT, blocks, page_runner
from tests.tiny import row_names

Run = Callable[[Path, Path], str]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
ONE_PROCESS = pytest.mark.xdist_group("pages")
SLOW = [pytest.mark.slow, pytest.mark.ray, pytest.mark.xdist_group("ray")]
SLOW_PAGES = {"cluster.md", "own_question.md", "ray_tune.md", "reading_a_ranking.md"}
"""Pages that start a Ray cluster, or train for minutes."""


@pytest.fixture(scope="module")
def run_page() -> Iterator[Run]:
    """Executes pages in forks of one process, whose imports take seconds."""
    with page_runner() as run:
        yield run


def parameter(page: Path):
    marks = ONE_PROCESS
    if page.name in SLOW_PAGES:
        marks = SLOW
    return pytest.param(page, marks=marks, id=page.name)


@pytest.mark.parametrize("page", list(map(parameter, TUTORIALS)))
def test_the_code_of_a_tutorial_runs(page, run_page, tmp_path):
    assert list(blocks(page))
    printed = run_page(page, tmp_path)
    if page.name == "first_ablation.md":
        # The page quotes what the study finds.
        claim = "Worse than 'wild type' by more than 0.02 nats: no memory (costs"
        assert claim in page.read_text()
        assert claim in printed


def first_python_block(page: Path) -> str:
    return next(block.code for block in blocks(page) if block.kind == "python")


@ONE_PROCESS
def test_the_first_python_block_of_the_readme_runs_and_a_failing_block_is_named(run_page, tmp_path):
    first = first_python_block(ROOT / "README.md")
    page = tmp_path / "page.md"
    # The command after the one that fails is not run.
    page.write_text(f"```python\n{first}```\n\n```sh\nfalse\ntrue\n```\n")
    with pytest.raises(AssertionError, match="exit code 1:\nfalse\ntrue") as failed:
        run_page(page, tmp_path)
    printed = str(failed.value)
    assert re.search(r"^3 \d\.\d+$", printed, re.MULTILINE)
    assert "nats per token" in printed
    assert re.search(r"^-\d\d\.\d+ nats$", printed, re.MULTILINE)
    assert "no carry" in printed


def outputs(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for cell in cells:
        found += cell["outputs"]
    return found


def without_numbers(text: str) -> set[str]:
    """Return the lines of a text, in which numbers may differ from machine to machine."""
    return set(re.sub(r"-?\d+\.\d+", "#", text).splitlines())


NOTEBOOK = ROOT / "docs/notebooks/first_steps.ipynb"


@pytest.fixture
def cells() -> list[dict[str, Any]]:
    """The cells of the notebook that have code."""
    content = json.loads(NOTEBOOK.read_text())
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_has_its_outputs(cells):
    for cell in cells:
        assert cell["outputs"], "store the outputs: see CONTRIBUTING.md"
    for output in outputs(cells):
        assert output["output_type"] != "error"
    assert "data:image/svg+xml" in str(cells[-1]["outputs"]), "no forest plot"


def test_the_notebook_names_no_folder_of_a_machine():
    assert not re.search(r"/(home|root|tmp|Users|work)/", NOTEBOOK.read_text())


@ONE_PROCESS
def test_the_cells_of_the_notebook_run_in_order(cells, run_page, tmp_path):
    sources = ["".join(cell["source"]) for cell in cells]
    assert len(sources) >= 6
    page = tmp_path / "page.md"
    page.write_text("```python\n" + "\n".join(sources) + "\n```\n")
    printed = run_page(page, tmp_path)
    assert "'programming' is not in the vocabulary of captions, which has no <unk>" in printed
    sentence, reverse, *_ = re.findall(r"^ *(-\d+\.\d\d) ", printed, re.MULTILINE)
    assert float(sentence) > float(reverse), "a sentence is more probable than its reverse"
    stored = ""
    for output in outputs(cells):
        # Others are figures and the progress of trainings.
        if output.get("name") == "stdout":
            stored += "".join(output["text"])
    assert without_numbers(stored) <= without_numbers(printed)
    assert (tmp_path / "runs/carry-captions/study.json").exists()


def test_the_block_of_the_page_about_texts_is_what_is_printed(tmp_path, monkeypatch, capsys):
    page = ROOT / "docs/how/text.md"
    monkeypatch.chdir(tmp_path)
    # It writes the text that is described.
    exec(first_python_block(page))
    assert run_lmzoo("describe", "text:my.txt") == 0
    printed = capsys.readouterr().out
    assert f"```\n{printed}```" in page.read_text()


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 100
    assert len(text.split()) <= 700


def test_every_row_has_a_recorded_audit_that_it_passes():
    recorded = json.loads((ROOT / "docs/results/audits.json").read_text())
    audited = set()
    for audit in recorded:
        if not audit["variant"]:
            audited.add(audit["name"])
            assert not audit["faults"]
    assert audited == set(row_names()), "run `make results`"
