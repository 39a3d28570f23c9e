"""Every page with code runs as it is printed."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmzoo import zoo
from tests.cli.run_lmzoo import run_lmzoo
from tests.docs.pages import ROOT, blocks, page_runner

Run = Callable[[Path, Path], str]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
ONE_PROCESS = pytest.mark.xdist_group("pages")
SLOW = [pytest.mark.slow, pytest.mark.ray, pytest.mark.xdist_group("ray")]
SLOW_PAGES = {"cluster.md", "own_question.md", "ray_tune.md", "reading_a_ranking.md"}
"""Pages that start a Ray cluster for the whole machine, or train for minutes."""


@pytest.fixture(scope="module")
def run_page() -> Iterator[Run]:
    """Executes pages in forks of one process, whose imports take seconds."""
    with page_runner() as run:
        yield run


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=SLOW if page.name in SLOW_PAGES else ONE_PROCESS, id=page.name)
        for page in TUTORIALS
    ],
)
def test_the_code_of_a_tutorial_runs(page, run_page, tmp_path):
    assert any(True for _ in blocks(page))
    printed = run_page(page, tmp_path)
    if page.name == "first_ablation.md":
        claim = "Worse than 'wild type' by more than 0.02 nats: no memory (costs"
        assert claim in page.read_text()
        assert claim in printed


@ONE_PROCESS
def test_the_first_python_block_of_the_readme_runs_and_a_failing_block_is_named(run_page, tmp_path):
    first = next(block for block in blocks(ROOT / "README.md") if block.kind == "python")
    page = tmp_path / "page.md"
    page.write_text(f"```python\n{first.code}```\n\n```sh\nfalse\ntrue\n```\n")
    with pytest.raises(AssertionError, match="exit code 1:\nfalse\ntrue") as failed:
        run_page(page, tmp_path)
    printed = str(failed.value)
    assert re.search(r"^3 \d\.\d+$", printed, re.MULTILINE)
    assert "nats per token" in printed
    assert re.search(r"^-\d\d\.\d+ nats$", printed, re.MULTILINE)
    assert "no carry" in printed


def outputs(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [output for cell in cells for output in cell.get("outputs", ())]


def without_numbers(text: str) -> list[str]:
    return re.sub(r"-?\d+\.\d+", "#", text).splitlines()


def test_the_notebook_has_its_outputs_and_names_no_folder_of_a_machine():
    text = (ROOT / "docs/notebooks/first_steps.ipynb").read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    silent = [cell["source"] for cell in cells if not cell["outputs"]]
    assert not silent, "store the outputs: see CONTRIBUTING.md"
    assert not [output for output in outputs(cells) if output["output_type"] == "error"]
    assert "data:image/svg+xml" in str(cells[-1]["outputs"]), "no forest plot"
    assert not re.search(r"/(home|root|tmp|Users|work)/", text)


@ONE_PROCESS
def test_the_cells_of_the_notebook_run_in_order(run_page, tmp_path):
    cells = json.loads((ROOT / "docs/notebooks/first_steps.ipynb").read_text())["cells"]
    source = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(source) >= 6
    page = tmp_path / "page.md"
    page.write_text("```python\n" + "\n".join(source) + "\n```\n")
    printed = run_page(page, tmp_path)
    assert "'programming' is not in the vocabulary of captions, which has no <unk>" in printed
    scores = [float(score) for score in re.findall(r"^ *(-\d+\.\d\d) ", printed, re.MULTILINE)]
    assert scores[0] > scores[1], "a sentence is more probable than its reverse"
    stdout = [output for output in outputs(cells) if output.get("name") == "stdout"]
    stored = "".join(text for output in stdout for text in output["text"])
    assert set(without_numbers(stored)) <= set(without_numbers(printed))
    assert (tmp_path / "runs/carry-captions/study.json").exists()


def test_the_block_of_the_page_about_texts_is_what_is_printed(tmp_path, monkeypatch, capsys):
    page = ROOT / "docs/how/text.md"
    monkeypatch.chdir(tmp_path)
    exec(next(block.code for block in blocks(page) if block.kind == "python"))
    assert run_lmzoo("describe", "text:my.txt") == 0
    assert f"```\n{capsys.readouterr().out}```" in page.read_text()


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 100
    assert len(text.split()) <= 700


def test_every_row_has_a_recorded_audit_that_it_passes():
    recorded = json.loads((ROOT / "docs/results/audits.json").read_text())
    passes = {one["name"]: not one["faults"] for one in recorded if not one["variant"]}
    rows = {name for name in zoo.names() if zoo.row(name).model is not None}
    assert passes == dict.fromkeys(rows, True), "run `make results`"
