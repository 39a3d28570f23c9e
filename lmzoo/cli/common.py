"""Options, table style and text that several subcommands share."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from lmzoo.cells.cuts import numbered

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the corpus files. Default: download them.")
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


def describe_cuts(model_config: Any) -> str:
    """Return the cuts of a model's cell, such as "cut carry (6)", or '' without cuts."""
    cuts = getattr(getattr(model_config, "cell", None), "cuts", ())
    return f"cut {numbered(cuts)}" if cuts else ""
