"""The measured rows into docs/benchmarks.md, between the markers of their section.

    python benchmarks/publish.py [--folder runs/bench] [--page docs/benchmarks.md]

A section stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`; only what lies
between is replaced, and a section whose JSON is not there stays as it is. A section's
picture goes beside the page.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Annotated

import typer
from measure import table

from lmzoo.command_line import run_command
from lmzoo.errors import UserError

GPU = ("gpu-scan", "gpu-fused", "gpu-growth", "gpu-table")
SECTIONS = ("scan", "fuse", "mixture", "words", "ranking", "trials", "sweep", "growth", *GPU)


def main(
    folder: Annotated[Path, typer.Option()] = Path("runs/bench"),
    page: Annotated[Path, typer.Option()] = Path("docs/benchmarks.md"),
) -> None:
    """Rewrite the sections that were measured."""
    text = page.read_text()
    for name in SECTIONS:
        file = folder / f"{name}.json"
        if file.is_file():
            text = section(text, name, table(json.loads(file.read_text())))
        picture = file.with_suffix(".svg")
        if picture.is_file():
            shutil.copyfile(picture, page.with_name(picture.name))
    page.write_text(text)


def section(text: str, name: str, body: str) -> str:
    """The page with one section's body replaced.

    Raises:
        UserError: the page has no such section, or several.
    """
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    found = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(found.findall(text)) != 1:
        raise UserError(f"the page has not exactly one section {begin} ... {end}; put one there")
    return found.sub(lambda _: f"{begin}\n{body}{end}", text)


if __name__ == "__main__":
    run_command(main)
