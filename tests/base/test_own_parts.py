"""Modules of the user are imported from files, by name, and from entry points."""

import os
import sys

import pytest

from lmzoo.base import own_parts as plugins
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from tests.own_part_files import own_parts as own_parts


def test_a_file_is_imported_with_the_modules_next_to_it(own_parts):
    module = plugins.import_source(own_parts / "own_mingru.py")
    assert CELLS["own_mingru"] is module.MinGRU
    assert plugins.import_source(own_parts / "own_mingru.py") is module
    study = plugins.import_source(own_parts / "own_study.py").STUDY
    assert (study.name, plugins.importing()) == ("own", False), "it does not run"


def test_a_package_is_imported_from_its_folder_or_a_file_of_it(own_parts):
    package = own_parts / "own_cells"
    package.mkdir()
    (package / "__init__.py").write_text("from own_cells import gated\n")
    (own_parts / "own_mingru.py").rename(package / "gated.py")
    assert plugins.import_source(package).__name__ == "own_cells"
    module = plugins.import_source(package / "gated.py")
    assert module.__name__ == "own_cells.gated"
    assert CELLS["own_mingru"] is module.MinGRU


def test_entry_points_of_installed_packages_are_imported(own_parts, monkeypatch):
    facts = own_parts / "own_cells-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: own-cells\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[lmzoo.plugins]\ncells = own_mingru\n")
    monkeypatch.syspath_prepend(str(own_parts))
    plugins.import_installed()
    assert "own_mingru" in CELLS


def test_the_environment_names_plugins(own_parts, monkeypatch):
    files = [str(own_parts / name) for name in ("own_gate.py", "own_mingru.py")]
    monkeypatch.setenv(plugins.VARIABLE, os.pathsep.join(files))
    plugins.import_installed()
    assert "own_mingru" in CELLS


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("missing.py", None, "there is no file"),
        ("no_such_module", None, "cannot be imported: ModuleNotFoundError: .*'no_such_module'"),
        ("own_fault.py", "import os\n1 / 0\n", r"ZeroDivisionError: .* \(.*own_fault.py, line 2\)"),
        ("own_typo.py", "def f(:\n", "own_typo.py cannot be imported: SyntaxError"),
        ("json.py", "", "has the name of the module 'json', .*; rename the file"),
        (
            "own_v1.2.py",
            "",
            "own_v1.2.py has a dot in its name, so it is no module; name it own_v1_2.py",
        ),
    ],
)
def test_what_cannot_be_imported_is_one_line(name, source, message, own_parts):
    spec = name
    if name.endswith(".py"):
        spec = own_parts / name
    if source is not None:
        (own_parts / name).write_text(source)
    with pytest.raises(UserError, match=message) as caught:
        plugins.import_source(spec)
    assert "\n" not in str(caught.value)
    assert sys.modules.get("json") is not None
