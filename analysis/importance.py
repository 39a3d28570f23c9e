"""Estimate the importance of the searched fields (fANOVA).

    python analysis/importance.py runs/gru_ablation-captions

The same as `lmzoo importance`; `--help` lists the options.
"""

import typer

from lmzoo.cli.tables import importance
from lmzoo.command_line import run_app

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(importance)
    run_app(app)
