"""Write a study on one HTML page that opens without a network.

    python analysis/report.py runs/gru_ablation-captions

The same as `lmzoo report`; `--help` lists the options.
"""

import typer

from lmzoo.cli.tables import report
from lmzoo.command_line import run_app

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(report)
    run_app(app)
