"""Options and table style that several subcommands share."""

import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lmzoo.base.streams import echo

if TYPE_CHECKING:
    from lmzoo.lab.analysis.render import Report

Format = Annotated[str, typer.Option(help="table, md, csv, json, latex or github.")]
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


def print_report(report: "Report", format: str) -> None:
    """Print a report in a format, for the width of the terminal."""
    from lmzoo.lab.analysis.render import csv_note, render

    width, terminal = shutil.get_terminal_size((100, 40)).columns, sys.stdout.isatty()
    echo(render(report, format, width=width, colour=terminal, complete=not terminal))
    if format == "csv" and (note := csv_note(report)):
        echo(note, err=True)
