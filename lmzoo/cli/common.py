"""Options and text that the commands on models share."""

from pathlib import Path
from typing import Annotated, Any

import typer

DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the corpus files. Default: download them.")
]
ModelSettings = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the row's model, such as model.width=64; repeatable.")]  # fmt: skip


def describe_cuts(model_config: Any) -> str:
    """Return the cuts of a model's cell, such as "cut carry (6)", or '' without cuts."""
    from lmzoo.cells.cuts import numbered  # imports torch

    cuts = getattr(getattr(model_config, "cell", None), "cuts", ())
    return f"cut {numbered(cuts)}" if cuts else ""
