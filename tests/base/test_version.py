"""Nodes of a sweep have the same software."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lmzoo
from lmzoo.base.errors import UserError
from lmzoo.base.version import check_software, software


def test_a_node_with_another_package_or_version_is_named():
    own = software()
    check_software(own)
    for name in own:
        with pytest.raises(UserError, match=f"{name} .* here, other there; install the same"):
            check_software({**own, name: "other"})


def test_one_changed_character_of_the_source_is_another_package(tmp_path, monkeypatch):
    copy = shutil.copytree(Path(lmzoo.__file__).parent, tmp_path / "lmzoo")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = [sys.executable, "-c", "from lmzoo.base.version import software; print(software())"]
    same = subprocess.check_output(words, cwd=tmp_path, text=True)
    assert same.strip() == str(software())
    (copy / "api.py").write_text("")
    assert subprocess.check_output(words, cwd=tmp_path, text=True) != same
