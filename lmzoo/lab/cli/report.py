"""`lmzoo report`: a study as one web page.

`lmzoo records`: the records of a study in one file, and back.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lmzoo.base.errors import writing
from lmzoo.base.foreign import below
from lmzoo.base.parts import install_command, is_complete
from lmzoo.base.streams import echo
from lmzoo.lab.cli.tables import Unit
from lmzoo.lab.store.records import find_study


def report(
    name: Annotated[str, typer.Argument(metavar="STUDY", help="A study: its folder, a file of records, or its name in runs/, or the beginning of the name.")],
    out: Annotated[Path | None, typer.Option(help="File of the page. Default: STUDY/report.html.")] = None,
    unit: Unit = "token",
):  # fmt: skip
    """Write a study on one HTML page that needs no other file.

    Charts answer to the mouse, tables can be sorted and filtered. The page is made of records and
    loads no model. The extra `figures` draws the charts.
    """
    from lmzoo.lab.analysis.render import output_path
    from lmzoo.lab.analysis.report import render_report

    study = find_study(name)
    target = output_path(study, out, "report.html")
    if out is None:  # in a folder of somebody else, too
        target = below(target.parent, target.name)
    if out or study.exists():
        with writing(target):  # before the seconds that the page takes
            pass
    text = render_report(study, unit=unit)
    with writing(target):
        target.write_text(text, encoding="utf-8")
    echo(target)
    if not is_complete("figures"):
        echo(f"it has no charts; to draw them, run: {install_command(['figures'])}", err=True)


Action = StrEnum("Action", "SAVE RESTORE")
"""What to do with the records."""


def records(
    action: Annotated[Action, typer.Argument(help="save STORE FILE, or restore FILE STORE.")],
    source: Annotated[Path, typer.Argument(help="What is read.")],
    target: Annotated[Path, typer.Argument(help="What is written.")],
):  # fmt: skip
    """Save the records of a study as one Parquet file, or restore them.

    The file has all configs and losses, and no checkpoints. Tables read it like a folder:
    `lmzoo rank FILE.parquet`. A sweep in the restored store trains only the runs that are missing.
    """
    from lmzoo.lab.analysis.environments import commits_line
    from lmzoo.lab.analysis.load import load_study
    from lmzoo.lab.analysis.study_parquet import restore_study, save_study

    if action is Action.SAVE:
        size = save_study(source, target)
        echo(f"{target}: {size / 1000:.0f} kB")
        line = commits_line(load_study(target).runs.collect())
        if line:
            echo(f"WARNING: {target}: {line}", err=True)
    else:
        echo(f"{target}: {restore_study(source, target)} runs")
