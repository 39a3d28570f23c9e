"""The `lmzoo` command: finds the subcommand and imports only what it needs."""

import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from lmzoo.command_line import importing, run_app

COMMANDS = {
    "list": "lmzoo.cli.catalogue:list_rows",
    "describe": "lmzoo.cli.catalogue:describe",
    "train": "lmzoo.cli.train:train",
    "sample": "lmzoo.cli.sample:sample",
    "posterior": "lmzoo.cli.posterior:write_posterior",
    "gates": "lmzoo.cli.gates:gates_of",
    "horizon": "lmzoo.cli.horizon:horizon",
    "audit": "lmzoo.cli.audit:audit_rows",
    "budget": "lmzoo.cli.leak_budget:budget",
    "rank": "lmzoo.cli.rank:main",
    "compare": "lmzoo.cli.compare:main",
    "curves": "lmzoo.cli.curves:main",
    "epistasis": "lmzoo.cli.epistasis:main",
    "importance": "lmzoo.cli.importance:main",
    "published": "lmzoo.cli.published:main",
    "report": "lmzoo.cli.report:main",
}
"""Subcommand -> where its function is, in the order in which `--help` lists them."""


def build_app(names: Sequence[str]) -> typer.Typer:
    """The command line with these subcommands."""
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        help="Train, inspect and compare small sequence models.",
    )
    app.callback()(lambda: None)  # a single subcommand keeps its name
    with importing():
        for name in names:
            module, _, function = COMMANDS[name].partition(":")
            app.command(name)(getattr(importlib.import_module(module), function))
    return app


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    run_app(build_app([asked] if asked in COMMANDS else list(COMMANDS)))
