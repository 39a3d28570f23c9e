"""Draw the learning curves, the tuned settings and the costs of a study.

    python analysis/curves.py runs/gru_ablation-captions

The same as `lmzoo curves`; `--help` lists the options.
"""

import typer

from lmzoo.cli.tables import curves
from lmzoo.command_line import run_app

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(curves)
    run_app(app)
