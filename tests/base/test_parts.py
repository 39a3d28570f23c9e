"""Tests of `lmzoo.base.parts`: a missing package is one line with a command that works."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lmzoo.base import parts
from lmzoo.base.command_line import run_app

ROOT = Path(__file__).parents[2]


def test_a_missing_package_is_one_line_with_all_parts_of_the_command(monkeypatch, capsys):
    for module in ("altair", "torch"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit) as stop:
        run_app(lambda **_: __import__("altair"), needs=("zoo", "sweeps"))
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: altair is missing; run: pip install -c ")
    assert error.endswith("[zoo,figures]'\n")  # the sweeps are there


def test_the_command_names_the_distribution_outside_of_a_clone(monkeypatch, tmp_path):
    monkeypatch.setattr(parts, "__file__", str(tmp_path / "lmzoo/base/parts.py"))
    assert parts.install_command(["zoo"]) == "pip install 'lmzoo-ablations[zoo]'"


def test_the_extras_bring_the_modules():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dists = {"vl_convert": "vl-convert-python"}
    for extra, modules in parts.PARTS.items():
        brought = [re.split(r"[^\w-]", d)[0] for d in project["optional-dependencies"][extra]]
        assert {dists.get(module, module) for module in modules} <= set(brought)


def test_the_laboratory_needs_no_package_but_those_of_the_base(tmp_path):
    """Judging, planning, ranking and reporting need no torch, Ray, Optuna and other extras."""
    records = ROOT / "docs/results/records/gru_ablation-captions.parquet"
    modules = [module for own in parts.PARTS.values() for module in own]
    code = (
        "import sys, importlib.abc\n"
        "class Missing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name in {modules}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import lmzoo.lab.cli.judge, lmzoo.lab.cli.plan, lmzoo.lab.cli.tables\n"
        "import lmzoo.lab.judging.verdicts, lmzoo.lab.judging.plan, lmzoo.lab.judging.commands\n"
        "import lmzoo.lab.analysis.ranking\n"
        "from lmzoo.lab.cli.report import report\n"
        "from pathlib import Path\n"
        f"report({str(records)!r}, out=Path({str(tmp_path / 'page.html')!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "11 points against &#39;wild type&#39;" in page
    assert "The page has no charts: the extra `figures` of lmzoo draws them." in page
    assert done.stderr.startswith("it has no charts; to draw them, run: pip install")
