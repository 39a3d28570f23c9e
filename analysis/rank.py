"""Rank the points of a study by test loss.

    python analysis/rank.py runs/gru_ablation-captions

The same as `lmzoo rank`; `--help` lists the options.
"""

import typer

from lmzoo.cli.tables import rank
from lmzoo.command_line import run_app

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(rank)
    run_app(app)
