"""The page of the public names lists names that exist, and all that a user is shown."""

import importlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

import lmzoo

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/public_api.md"
PUBLIC = {
    module: re.findall(r"`(\w+)`", names)
    for module, names in re.findall(r"^\| `([\w.]+)` \| (.*?) \|", PAGE.read_text(), re.M)
}
SHOWN = [*ROOT.glob("docs/tutorials/*.md"), *ROOT.glob("sweeps/*.py"), ROOT / "README.md"]


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_exist(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in PUBLIC[module] if not hasattr(loaded, name)] == []


def test_the_top_level_is_complete() -> None:
    assert sorted(PUBLIC["lmzoo"]) == sorted(lmzoo.__all__)


def test_what_tutorials_and_studies_import_is_public() -> None:
    used = defaultdict(set)
    for path in SHOWN:
        for module, names in re.findall(
            r"^from (lmzoo[\w.]*) import (.+)$", path.read_text(), re.M
        ):
            used[module] |= set(re.findall(r"\w+", names))
    assert used["lmzoo.cells.base"] >= {"CELLS", "Cell"}
    assert {
        m: names - set(PUBLIC.get(m, ()))
        for m, names in used.items()
        if names - set(PUBLIC.get(m, ()))
    } == {}


def test_every_folder_is_on_the_page_of_layers() -> None:
    page = (ROOT / "docs/how/layers.md").read_text()
    folders = {path.parent.name for path in (ROOT / "lmzoo").glob("*/__init__.py")}
    assert folders == set(re.findall(r"^\| `lmzoo\.(\w+)` \|", page, re.M)) - {"zoo"}
