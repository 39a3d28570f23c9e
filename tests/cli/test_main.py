"""The command `lmzoo`: its list of subcommands, and the errors that all of them share."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo import __version__
from lmzoo.cli.main import COMMANDS, PANELS
from tests.cases import rows

ROOT = Path(__file__).parents[2]
MODULES_AFTER_HELP = """
import sys
from lmzoo.cli.main import main
sys.argv = {argv!r}
try:
    main()
finally:
    print("imported:", *sorted({{name.split(".")[0] for name in sys.modules}} & {{"torch", "ray"}}))
"""


def test_help_imports_neither_torch_nor_ray():
    for arguments in (["rank", "--help"], ["--help"]):
        script = MODULES_AFTER_HELP.format(argv=["lmzoo", *arguments])
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0
        assert done.stderr == ""
        assert done.stdout.splitlines()[-1] == "imported:"


def test_help_lists_every_subcommand_in_its_panel(lmzoo):
    code, out, _ = lmzoo("--help")
    assert code == 0
    panels = re.findall(r"─ ([\w ]+) ─+╮\n(.*?)╰", out, re.DOTALL)
    listed = {}
    for title, text in panels:
        listed[title] = re.findall(r"^│ ([a-z]\w*) +\S", text, re.M)
    expected = {title: list(own) for title, own in PANELS.items()}
    assert listed == expected | {"Options": []}
    asked = ["init", "sweep", "rank", "report", "shrink", "judge", "plan"]
    assert listed["Ask a question"] == asked
    for name, (_, summary) in COMMANDS.items():
        # Every summary fits its line.
        assert summary in out, name


def test_the_version_is_that_of_the_package(lmzoo):
    assert lmzoo("--version") == (0, f"lmzoo {__version__}\n", "")


INTERRUPTED = """
import sys
class Interrupt:
    def find_spec(self, name, *rest):
        if name == "lmzoo.lab.sweep.command":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
import lmzoo
lmzoo.main()
"""


def test_an_interrupt_while_a_study_imports_is_one_line():
    words = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    # What a shell reports of a program that was interrupted.
    assert done.returncode == 130
    assert done.stderr == "stopped\n"


UNCHANGED = """
import logging, os, signal, sys
import {others}
OTHERS = [n for n, x in logging.root.manager.loggerDict.items() if hasattr(x, "level")]
def state():
    signals = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    levels = [logging.getLogger(name).level for name in OTHERS]
    return dict(os.environ), levels, sys.excepthook, sys.meta_path[:], sys.path[:], signals
before = state()
import lmzoo, lmzoo.cli.main, lmzoo.lab.analysis.frames, {own}
print([(old, new) for old, new in zip(before, state()) if old != new])
"""


@pytest.mark.parametrize(
    ("others", "own"),
    [
        ("optuna, polars", "lmzoo.lab.study.search"),
        pytest.param(
            "polars, ray.tune, torch",
            "lmzoo.tune, lmzoo.lab.sweep.tune_trials",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_import_changes_nothing_in_the_process(others, own):
    words = [sys.executable, "-c", UNCHANGED.format(others=others, own=own)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[]\n"
    assert done.stderr == ""


def test_a_wrong_name_or_value_is_one_line_with_a_hint(refused):
    for words, hint in rows("cli/cases.toml", "refused"):
        assert hint in refused(words), words


def test_a_study_shows_all_its_options():
    done = subprocess.run(
        [sys.executable, "sweeps/gru_ablation.py", "--help"],
        capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    assert "Usage: python sweeps/gru_ablation.py [OPTIONS]" in done.stdout
    shown = re.findall(r"^│ (--[\w-]+)", done.stdout, re.M)
    assert {"--corpus", "--seeds", "--dry-run", "--sampler", "--margin", "--fuse"} < set(shown)
