"""Options and table style that several subcommands share."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the corpus files; default: download them.")
]
ModelSettings = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the row's model, such as model.width=64; repeatable.")]  # fmt: skip


def new_table(*left: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table with left-aligned and then right-aligned columns."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table
