"""Draw learning curves, searched settings and costs.

    python analysis/curves.py runs/gru_ablation-captions

The same as `lmzoo curves`; `--help` lists the options.
"""

import typer

from lmzoo.cli.curves import main
from lmzoo.command_line import run_app

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    run_app(app)
