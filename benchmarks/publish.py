"""Write the measured rows into docs/benchmarks.md, between the markers of their section.

    python benchmarks/publish.py [--folder runs/bench] [--page docs/benchmarks.md]

A section is between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`; nothing else of the page
changes. A benchmark without a file (a Markdown table, or rows as JSON), or without a section in the
page, is skipped.
"""

import json
import re
from pathlib import Path
from typing import Annotated

import typer
from measure import table

from lmzoo.command_line import run_command
from lmzoo.errors import UserError

SECTIONS = [
    "scan",
    "fuse",
    "packed_rows",
    "search",
    "launches",
    "roofline",
    "gpu_resources",
    "rows",
]
SECTIONS += ["plain", *(f"gpu-{part}" for part in ("equal", "scan", "fused", "growth", "table"))]


def main(
    folder: Annotated[Path, typer.Option()] = Path("runs/bench"),
    page: Annotated[Path, typer.Option()] = Path("docs/benchmarks.md"),
) -> None:
    """Replace the sections that were measured."""
    text = page.read_text()
    for name in SECTIONS:
        file = folder / f"{name}.json"
        if file.with_suffix(".md").is_file():
            text = replace_section(text, name, file.with_suffix(".md").read_text())
        elif file.is_file():
            text = replace_section(text, name, table(json.loads(file.read_text())))
    page.write_text(text)


def replace_section(text: str, name: str, body: str) -> str:
    """Return the page with the body of one section replaced; unchanged without this section.

    Raises:
        UserError: The page has the section more than once.
    """
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    section = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(section.findall(text)) > 1:
        raise UserError(f"the page has several sections {begin} ... {end}; keep one")
    return section.sub(lambda _: f"{begin}\n{body}{end}", text)


if __name__ == "__main__":
    run_command(main)
