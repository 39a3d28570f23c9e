"""A cell and a study in a folder outside the package, as a user writes them."""

import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

import lmzoo.zoo  # noqa: F401  registers what the fixture restores
from lmzoo.base.registry import PARTS, ROWS
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS
from lmzoo.data.corpus import CORPORA
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import NORMALISERS

CELL = (files("lmzoo.cli.starter") / "cell.py").read_text("utf-8")
"""The cell of `lmzoo init`, with a gate from another file."""
for old, new in {
    "import torch\n": "import torch\nfrom own_gate import gate as own_gate\n",
    "torch.sigmoid(gate)": "own_gate(gate)",
    "my_study_cell": "own_mingru",
    "MyCell": "MinGRU",
}.items():
    CELL = CELL.replace(old, new, 1)
GATE = "import torch\n\n\ndef gate(z):\n    return torch.sigmoid(z)\n"
STUDY = """
import own_mingru  # registers the cell

from lmzoo import Point, Study, main

STUDY = Study(
    name="own",
    question="Does the gate need the state?",
    points=(
        Point("MGU", "recurrent_lm", {"cell": "mgu"}),
        Point("minGRU", "recurrent_lm", {"cell": "own_mingru"}),
    ),
    corpus="text:sentences.txt",
    fields={"corpus.length": 8, "model.width": 4, "model.emission.components": 3},
    epochs=2,
    samples=2,
    seeds=2,
)

main(STUDY)  # not guarded, as a forgetful user writes it
"""
SENTENCES = "a man rides a horse\na dog runs\ntwo men talk\nthe dog sleeps\nthe man sleeps\n"


def write_parts(folder: Path) -> Path:
    """Write the cell, the module that it imports, the study and its corpus into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own_mingru.py").write_text(CELL)
    (folder / "own_gate.py").write_text(GATE)
    (folder / "own_study.py").write_text(STUDY)
    (folder / "sentences.txt").write_text(SENTENCES * 8)
    return folder


@pytest.fixture
def own_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the parts; what a test imports from it is forgotten afterwards."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LMZOO_TRUST", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    registries = (CELLS, EMISSIONS, MODELS, ROWS, CORPORA, NORMALISERS)
    tables: list[dict] = [PARTS, *(registry._parts for registry in registries)]
    before = [dict(table) for table in tables]
    modules = set(sys.modules)
    path = list(sys.path)
    yield write_parts(tmp_path / "own")
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
