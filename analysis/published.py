"""Show the published tables beside our runs of their rows.

    python analysis/published.py runs/*

The same as `lmzoo published`; `--help` lists the options.
"""

import typer

from lmzoo.cli.published import main
from lmzoo.command_line import run_app

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    run_app(app)
