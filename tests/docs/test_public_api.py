"""The front door: its names, its docstring, and the page that lists what is public."""

import dataclasses
import importlib
import pydoc
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import lmzoo
from tests.toy_study import corpus as corpus
from tests.toy_study import corpus_fields as corpus_fields
from tests.toy_study import sentences as sentences
from tests.toy_study import undisturbed as undisturbed

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/public_api.md"
TABLE = re.findall(r"^\| `([\w.]+)` \| (.*?) \|", PAGE.read_text(), re.M)
PUBLIC = {module: re.findall(r"`(\w+)`", names) for module, names in TABLE}
SHOWN = [ROOT / "README.md"]
for pattern in ("docs/tutorials/*.md", "sweeps/*.py", "analysis/*.py", "lmzoo/cli/starter/*.py"):
    SHOWN += ROOT.glob(pattern)
HEAVY = {"torch", "ray", "optuna", "polars", "numpy", "typer", "rich"}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_exist(module):
    found = importlib.import_module(module)
    for name in PUBLIC[module]:
        assert hasattr(found, name), name


def test_the_names_of_the_front_door_are_those_of_the_page_and_of_the_docstring():
    names = sorted(lmzoo.__all__)
    assert names == sorted(PUBLIC["lmzoo"])
    shown = set(re.findall(r"lmzoo\.(\w+)", lmzoo.__doc__ or ""))
    # What `build` returns has no example of its own.
    assert shown == set(names) - {"TextModel"}
    assert set(dir(lmzoo)) == set(names) | {"__version__"}
    for name in names:
        assert getattr(lmzoo, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'ranks'"):
        _ = lmzoo.ranks  # type: ignore[attr-defined]


def test_importing_the_front_door_imports_nothing_heavy():
    code = "import sys, lmzoo; lmzoo.Study; print(*sorted(set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert HEAVY.isdisjoint(imported)


def test_what_tutorials_studies_and_scripts_import_is_public():
    used = defaultdict(set)
    for path in SHOWN:
        text = path.read_text()
        for module, names in re.findall(r"^from (lmzoo[\w.]*) import (.+)$", text, re.M):
            used[module] |= set(re.findall(r"\w+", names))
        if "import lmzoo\n" in text:
            used["lmzoo"] |= set(re.findall(r"\blmzoo\.(\w+)\(", text))
    assert used["lmzoo.cells.base"] >= {"CELLS", "Cell"}
    assert used["lmzoo"] >= {"Study", "Point", "main", "audit"}
    for module, names in used.items():
        private = names - set(PUBLIC.get(module, ()))
        assert not private, module


def test_every_folder_is_on_the_page_of_layers():
    page = (ROOT / "docs/how/layers.md").read_text()
    folders = {path.parent.name for path in (ROOT / "lmzoo").glob("*/__init__.py")}
    rows = set(re.findall(r"^\| `lmzoo\.(\w+)` \|", page, re.M))
    # Two layers are single files.
    assert folders == rows - {"zoo", "decode"}


EXAMPLE = re.compile(r"^(?: {4})?((?:model|lmzoo\.|search=).*?)(?: {3,}.*)?$", re.M)
SLOW = ("lmzoo.main", "lmzoo.run_study", "lmzoo.shrink", "lmzoo.ablate")
"""What starts Ray, downloads or trains for long; other tests run it."""
RESULTS = "".join(f"{v},{s},{1 + i + s / 100}\n" for i, v in enumerate("ab") for s in range(5))


@pytest.mark.parametrize("module", ["lmzoo", "lmzoo.api"])
def test_the_examples_of_a_docstring_run(module, tmp_path, monkeypatch, undisturbed):
    whole = importlib.import_module("lmzoo.data.captions")
    drawn = whole.sample_captions

    def few(seed, split, count):
        return drawn(seed, split, count // 40)

    monkeypatch.setattr(whole, "sample_captions", few)
    monkeypatch.chdir(tmp_path)
    # The file that an example judges.
    Path("results.csv").write_text("variant,seed,loss\n" + RESULTS)
    model = lmzoo.build("DLM46", "captions", width=4)
    model.fit(1)
    model.save("runs/single/1f3a90c2d4e5")
    names = {
        "lmzoo": lmzoo, "model": model, "module": torch.nn.GRU(4, 4),
        "inputs": [torch.rand(3, 2, 4)], "function_or_module": model.module,
        "STUDY": str(undisturbed),
    }  # fmt: skip
    lines = EXAMPLE.findall(importlib.import_module(module).__doc__ or "")
    assert len(lines) >= 5
    for line in lines:
        # Three dots stand for what does not matter.
        code = line.replace("Study(...,", "Study(name='x', question='?',").replace(", ...)", ",)")
        if not line.startswith(SLOW):
            exec(code, names)


def test_help_says_what_each_field_means():
    classes = [getattr(lmzoo, name) for name in lmzoo.__all__]
    described = [own for own in classes if dataclasses.is_dataclass(own)]
    assert len(described) == 7
    for own in described:
        text = pydoc.render_doc(own, renderer=pydoc.plaintext)
        for field in dataclasses.fields(own):
            assert re.search(rf"\b{field.name}: \w", text), f"{own.__name__}.{field.name}"
