"""Each option of each command stands on a page of the documentation."""

import importlib
import re
from pathlib import Path

import typer

from lmzoo.cli.main import COMMANDS
from lmzoo.lab.study.study import Study, options

ROOT = Path(__file__).parents[2]
OF_ALL = {"--help", "--install-completion", "--show-completion"}


def test_each_option_is_documented():
    known = set(OF_ALL)
    pages = [ROOT / "README.md"]
    pages += (ROOT / "docs").rglob("*.md")
    for page in pages:
        # Decisions tell of options that were not built.
        if "decisions" not in page.parts:
            text = page.read_text("utf-8")
            known.update(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
    for option in options(Study).values():
        assert known & {option.flag, option.switch}
    for path, _ in COMMANDS.values():
        for parameter in parameters(path):
            spellings = parameter.opts + parameter.secondary_opts
            if spellings[0].startswith("-"):
                assert known.intersection(spellings), path


def parameters(path: str) -> list:
    """Return the arguments and options of a command, by the path of its function."""
    module, _, function = path.partition(":")
    app = typer.Typer()
    app.command()(getattr(importlib.import_module(module), function))
    return typer.main.get_command(app).params
