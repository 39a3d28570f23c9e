"""`python -m lmzoo COMMAND`: everything that is done to one model at a time."""

import typer

from lmzoo.edge import importing, run

with importing():
    from lmzoo.commands.audit import audit_rows
    from lmzoo.commands.budget import budget
    from lmzoo.commands.catalogue import describe, list_rows
    from lmzoo.commands.gates import gates_of
    from lmzoo.commands.horizon import horizon
    from lmzoo.commands.posterior import write_posterior
    from lmzoo.commands.sample import sample
    from lmzoo.commands.train import train

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)
app.command("list")(list_rows)
app.command()(describe)
app.command()(train)
app.command()(sample)
app.command("posterior")(write_posterior)
app.command("audit")(audit_rows)
app.command()(budget)
app.command()(horizon)
app.command("gates")(gates_of)

if __name__ == "__main__":
    run(app)
