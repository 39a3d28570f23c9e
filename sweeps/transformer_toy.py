"""Does a post-LN transformer need warm-up, and which initial weights let it learn?"""

import typer

from lmzoo.command_line import run_app
from lmzoo.experiments.transformer_toy_grid import main

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    run_app(app)
