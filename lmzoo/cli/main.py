"""The command `lmzoo`, which imports only the module of the requested subcommand."""

import importlib
import sys
from typing import NoReturn

import typer

from lmzoo.command_line import gc_disabled, run_app

COMMANDS = {
    "list": ("lmzoo.cli.catalogue:list_rows", "List every row of the zoo."),
    "describe": ("lmzoo.cli.catalogue:describe", "Show a row: config, search ranges, equations."),
    "train": ("lmzoo.cli.train:train", "Train one model."),
    "sample": ("lmzoo.cli.sample:sample", "Generate sentences with a trained run."),
    "posterior": (
        "lmzoo.cli.posterior:write_posterior",
        "Plot latents, attention and boundaries of sentences.",
    ),
    "gates": ("lmzoo.cli.gates:show_gates", "Show statistics of gates, states and attention."),
    "horizon": ("lmzoo.cli.horizon:show_horizon", "Show how far back gradients reach."),
    "audit": ("lmzoo.cli.audit:audit_rows", "Test whether rows are normalised and causal."),
    "budget": (
        "lmzoo.cli.leak_budget:show_budget",
        "Show what a leak of the bag of tokens is worth.",
    ),
    "rank": ("lmzoo.cli.tables:rank", "Rank the points of a study."),
    "compare": ("lmzoo.cli.tables:compare", "Compare points over seeds and test sequences."),
    "curves": ("lmzoo.cli.tables:curves", "Plot the runs of a study."),
    "epistasis": ("lmzoo.cli.tables:epistasis", "Estimate effects and interactions of cuts."),
    "importance": ("lmzoo.cli.tables:importance", "Estimate the importance of tuned fields."),
    "records": ("lmzoo.cli.records:records", "Save or restore the records of a study."),
    "published": ("lmzoo.cli.tables:published", "Compare studies with published results."),
    "report": ("lmzoo.cli.tables:report", "Write a study as one web page."),
}
"""Subcommand -> its function, and its line in `lmzoo --help`, in the order of that list."""


def build_app(command: str) -> typer.Typer:
    """Return the command line in which `command` can run; the others are only listed."""
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        help="Train, inspect and compare small sequence models.",
    )
    for name, (path, summary) in COMMANDS.items():
        module, _, function = path.partition(":")
        if name == command:
            with gc_disabled():
                app.command(name)(getattr(importlib.import_module(module), function))
        else:
            app.command(name, help=summary)(lambda: None)
    return app


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    run_app(build_app(sys.argv[1] if len(sys.argv) > 1 else ""))
