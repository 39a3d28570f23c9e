"""Show the published tables of S0 next to our runs of their rows.

    python analysis/published.py runs/*

The same as `lmzoo published`; `--help` lists the options.
"""

import typer

from lmzoo.cli.tables import published
from lmzoo.command_line import run_app

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(published)
    run_app(app)
