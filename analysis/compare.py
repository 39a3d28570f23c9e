"""Compare every point with one reference, over seeds and test sequences.

    python analysis/compare.py runs/gru_ablation-captions

The same as `lmzoo compare`; `--help` lists the options.
"""

import typer

from lmzoo.cli.tables import compare
from lmzoo.command_line import run_app

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(compare)
    run_app(app)
