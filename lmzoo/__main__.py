"""`python -m lmzoo list | describe NAME | train NAME | sample RUN | posterior RUN`."""

import typer

from lmzoo.commands.catalogue import describe, list_rows
from lmzoo.commands.posterior import write_posterior
from lmzoo.commands.sample import sample
from lmzoo.commands.train import train
from lmzoo.edge import run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)
app.command("list")(list_rows)
app.command()(describe)
app.command()(train)
app.command()(sample)
app.command("posterior")(write_posterior)

if __name__ == "__main__":
    run(app)
