"""Options and table style that several subcommands share."""

from typing import Annotated

import typer
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Metric = Annotated[str, typer.Option("--metric", "--unit", help="token or sentence.")]


def new_table(*left: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table with left-aligned and then right-aligned columns."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table
