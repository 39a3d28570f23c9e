"""Each benchmark, drill, tool and script of analysis says what it does: `--help` has its docstring.

It measures nothing then, and is done in seconds. `tests/benchmarks/test_scripts.py` runs the
benchmarks, `tests/test_analysis_scripts.py` the scripts, `make check` and other tests the tools.
"""

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("analysis", "benchmarks", "drills", "tools")
APART = {"gpu_resources", "launches", "roofline"}
"""Scripts that change how Triton and torch run, which other tests of the process would notice."""


def scripts():
    """Yield the files that a user can run."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if '\nif __name__ == "__main__":' in path.read_text():
                yield str(path.relative_to(ROOT))


def help_of(path, monkeypatch, capsys):
    """Return what a script prints with --help; the script must end then, with exit code 0."""
    if path.stem in APART:
        command = [sys.executable, str(path), "--help"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    # A script finds its neighbours, and those of the root.
    monkeypatch.setattr(sys, "path", [str(path.parent), str(ROOT), *sys.path])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    assert not end.value.code
    return capsys.readouterr().out


def check(path, monkeypatch, capsys):
    """Fail unless the help of a script has its docstring."""
    said = " ".join(help_of(path, monkeypatch, capsys).split())
    described = ast.get_docstring(ast.parse(path.read_text()))
    assert " ".join(described.split()) in said


@pytest.mark.parametrize("script", list(scripts()))
def test_help_is_the_docstring(script, monkeypatch, capsys):
    check(ROOT / script, monkeypatch, capsys)


@pytest.mark.parametrize(
    "body",
    ["print('measured')", "import argparse\nargparse.ArgumentParser().parse_args()"],
)
def test_a_rotten_script_is_seen(body, tmp_path, monkeypatch, capsys):
    path = tmp_path / "rotten.py"
    path.write_text(f'"""What it measures, against whom."""\n{body}\n')
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(path, monkeypatch, capsys)
