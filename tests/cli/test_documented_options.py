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
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages if "decisions" not in page.parts)
    known = {*re.findall(r"(?<![\w-])--[a-z][a-z-]*", text), *OF_ALL}
    names = [{own.flag, own.switch} - {None, ""} for own in options(Study).values()]
    for path, _ in COMMANDS.values():
        module, _, function = path.partition(":")
        app = typer.Typer()
        app.command()(getattr(importlib.import_module(module), function))
        params = typer.main.get_command(app).params
        names += [{*p.opts, *p.secondary_opts} for p in params if p.opts[0].startswith("-")]
    assert [own for own in names if not own & known] == []
