"""`lmzoo report`: a study, or the comparison of two, as one web page."""

from pathlib import Path
from typing import Annotated

import typer

from lmzoo.cli.run_names import find_studied, find_study
from lmzoo.cli.tables import Metric


def report(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study: its folder, a file of records, or its name (or the beginning) in runs/. "
            "STUDY:POINT, the folder of a run, or the first digits of its name show this point "
            "first in the charts.",
        ),
    ],
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]",
            help="A second study, or the same with another version: compare the two.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File of the page. Default: STUDY/report.html.")
    ] = None,
    metric: Metric = "token",
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the corpus's files.")] = None,
    ask: Annotated[bool, typer.Option(help="Sample from the best models and audit them.")] = True,
) -> None:
    """Write a study, or the comparison of two, on one HTML page that needs no other file.

    Charts answer to the mouse, tables can be sorted and filtered. Samples and audits of the best
    models take about 15 seconds each; --no-ask leaves them out.
    """
    from lmzoo.analysis.output_path import output_path
    from lmzoo.analysis.report import render_report
    from lmzoo.analysis.report.two import render_two

    study, point = find_studied(name)
    target = output_path(study, out, "report.html")
    if other is not None:
        text = render_two([study, find_study(other)], metric=metric)
    else:
        text = render_report(study, metric=metric, use_models=ask, data_dir=data_dir, point=point)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    typer.echo(target)
