"""`lmzoo init NAME`: a study and a cell of the user's own, which run as they are."""

import keyword
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from lmzoo.errors import UserError, writing
from lmzoo.streams import echo

STARTER = {"study.py": "{}.py", "cell.py": "{}_cell.py"}
"""File in `lmzoo/cli/starter` -> name of the file that is written."""


def init(
    name: Annotated[str, typer.Argument(help="Name of the study, a word such as my_study.")],
    folder: Annotated[Path, typer.Option(help="Where the files are written.")] = Path(),
) -> None:
    """Write NAME.py, a study, and NAME_cell.py, a cell that it compares with known ones.

    Both run as they are: change the equation of the cell and the points of the study.
    """
    if not name.isidentifier():
        raise UserError(f"name {name!r} is not a word of letters, digits and _, such as my_study")
    targets = {source: folder / target.format(name) for source, target in STARTER.items()}
    for path in targets.values():
        if path.exists():
            raise UserError(f"{path} exists; choose another name, or delete the file")
    if keyword.iskeyword(name) or find_spec(name):
        raise UserError(f"{name!r} is a word or a module of Python; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    for source, path in targets.items():
        text = files("lmzoo.cli.starter").joinpath(source).read_text("utf-8")
        with writing(path):
            path.write_text(text.replace("my_study", name), encoding="utf-8")
    study, cell = targets.values()
    echo(f"{study}\n{cell}")
    echo(f"next: lmzoo check {cell}, then lmzoo sweep {study}")
