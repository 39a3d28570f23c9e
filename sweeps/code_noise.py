"""Does the linear autoencoder compress best because nothing disturbs its code?"""

import typer

from lmzoo.command_line import run_app
from lmzoo.experiments.code_noise import main

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    run_app(app)
