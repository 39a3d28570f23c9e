"""Write the measured rows into docs/benchmarks.md, between the markers of their section.

    python benchmarks/publish.py [--folder runs/bench] [--page docs/benchmarks.md]

A section is between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`; nothing else of the page
changes. A file is a Markdown table, or rows as JSON; one without a section in the page is skipped.
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from measure import table

from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError
from lmzoo.base.streams import echo


def main(
    folder: Annotated[Path, typer.Option()] = Path("runs/bench"),
    page: Annotated[Path, typer.Option()] = Path("docs/benchmarks.md"),
) -> None:
    """Replace the sections that were measured."""
    text = page.read_text()
    for file in sorted([*folder.glob("*.md"), *folder.glob("*.json")]):
        begin, end = f"<!-- bench:{file.stem} -->", f"<!-- /bench:{file.stem} -->"
        if text.count(begin) > 1:
            raise UserError(f"the page has several sections {begin} ... {end}; keep one")
        if begin in text:
            body = file.read_text()
            body = table(json.loads(body)) if file.suffix == ".json" else body
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}\n{body}{end}{rest.partition(end)[2]}"
            echo(f"{page}: section {file.stem}")
        else:
            echo(f"{page} has no section {begin}; {file.name} is left out")
    page.write_text(text)


if __name__ == "__main__":
    run_command(main)
