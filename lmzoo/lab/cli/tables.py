"""Tables on a terminal: their options and style, and the subcommands that print those of a study.

Each function imports what it needs, so a table is not delayed by the chart libraries.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lmzoo.base.streams import echo
from lmzoo.lab.store.records import find_study

if TYPE_CHECKING:
    from lmzoo.lab.analysis.render import Report

Format = Annotated[str, typer.Option(help="table, md, csv, json, latex or github.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def new_table(*left: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table with left-aligned and then right-aligned columns."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table


def print_report(report: "Report", format: str):
    """Print a report in a format, for the width of the terminal."""
    from lmzoo.lab.analysis.render import csv_note, render

    width = shutil.get_terminal_size((100, 40)).columns
    echo(render(report, format, width=width, colour=sys.stdout.isatty()))
    if format == "csv":
        note = csv_note(report)
        if note:
            echo(note, err=True)


Study = Annotated[Path, typer.Argument(callback=lambda path: find_study(str(path)), metavar="STUDY", help="A study: its folder, a file of records, or its name in runs/, or the beginning of the name.")]  # fmt: skip
Unit = Annotated[str, typer.Option(help="token or sentence: nats per token, averaged over tokens or sentences; bpc, bpb: bits per character or byte.")]  # fmt: skip

Reference = Annotated[str | None, typer.Option(metavar="POINT", help="Compare with this point: a label, or a cut by name or number. Default: the study's reference.")]  # fmt: skip


def rank(
    study: Study,
    format: Format = "table",
    unit: Unit = "token",
    margin: Annotated[float | None, typer.Option(help="Difference in nats below which a point is negligible. Default: the study's.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print all columns, notes and chosen settings.")] = False,
    reference: Reference = None,
    after_training: Annotated[bool, typer.Option("--after-training", help="Add what the same cuts cost trained models, as lmzoo ablate measured it.")] = False,
    as_json: AsJson = False,
):  # fmt: skip
    """Rank the points of a study: means, intervals, differences, verdicts, caveats, next command.

    The exit code is 0 for every verdict, and 2 for bad input.
    """
    from lmzoo.lab.analysis.frames import rank as ranked
    from lmzoo.lab.analysis.render import check_format

    if as_json:
        format = "json"
    check_format(format)  # before the study is read
    frame = ranked(
        study, unit=unit, margin=margin, reference=reference, after_training=after_training
    )
    report = frame.report
    assert report is not None, "a ranking has a report"
    if format == "table" and not explain and report.brief is not None:
        report = report.brief
    print_report(report, format)


def figure(
    study: Study,
    out: Annotated[Path, typer.Option(help="File: .pdf, .svg or .png.")] = Path("forest.pdf"),
    kind: Annotated[str, typer.Option(help="forest, curves, seeds, cost-parameters, cost-flops, cost-seconds, factors, importance, tuning, tuning-FIELD or after-training. Default: the name of the file.")] = "",
    width: Annotated[str, typer.Option(metavar="WIDTH", help="As 3.3in, 84mm or 240pt; text has 8 points. A column of a paper has about 3.3in.")] = "7.1in",
    unit: Unit = "token",
    as_json: AsJson = False,
):  # fmt: skip
    """Draw a figure of a study for a paper, and print its caption."""
    from lmzoo.lab.analysis.render import output_path
    from lmzoo.lab.analysis.report.figure import write_figure

    output_path(study, out, "")
    caption = write_figure(study, out, width, unit, kind)
    if as_json:
        echo(json.dumps({"file": str(out), "caption": caption}))
        return
    echo(f"{out}: {caption}")
