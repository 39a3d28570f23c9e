"""Estimate the effect of every cut and the interaction of every pair of cuts.

    python analysis/epistasis.py runs/gru_factorial-captions

The same as `lmzoo epistasis`; `--help` lists the options.
"""

import typer

from lmzoo.cli.epistasis import main
from lmzoo.command_line import run_app

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    run_app(app)
