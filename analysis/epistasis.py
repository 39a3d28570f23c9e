"""Estimate the effect of every switch of a cell and the interaction of every pair.

    python analysis/epistasis.py runs/gru_factorial-captions

The same as `lmzoo epistasis`; `--help` lists the options.
"""

import typer

from lmzoo.cli.tables import epistasis
from lmzoo.command_line import run_app

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(epistasis)
    run_app(app)
