"""Which searched field mattered, and to what extent is it the point that matters?

    lmzoo importance runs/architectures-captions
    lmzoo importance runs/architectures-captions --point "gpt"
    lmzoo importance runs/architectures-captions --export tuned.db

From the tune stage of a study: frames/tuning.py says which losses are compared,
frames/fanova.py what a share is. `optuna-dashboard sqlite:///tuned.db` opens the export.
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from lmzoo.analysis.fanova import shares
from lmzoo.analysis.formatting import NONE, number
from lmzoo.analysis.load import load
from lmzoo.analysis.optuna_export import export as write_optuna
from lmzoo.analysis.render import Report, Sheet, known_format, render
from lmzoo.analysis.search_ranges import ranges
from lmzoo.analysis.tuning import between_points, read_tuning, settings
from lmzoo.errors import UserError


def render_importance(
    path: str | Path,
    format: str = "table",
    *,
    point: str | None = None,
    at: int | None = None,
    export: Path | None = None,
    width: int = 100,
    colour: bool = False,
) -> str:
    """The importance of the searched fields of the study in folder `path`, as text.

    Args:
        path: the study's folder.
        format: table, md, csv, json or latex.
        point: only this point's runs.
        at: compare losses up to this epoch; None is the last that every run reached.
        export: where to write the runs as an Optuna study.
        width: columns of the reader's window, for `table`.
        colour: use the terminal's styles, for `table`.

    Raises:
        UserError: too little was tuned, or a name is unknown.
    """
    known_format(format)
    folder = load(Path(path))
    tuning = read_tuning(folder, at, point)
    written = None if export is None else write_optuna(folder, tuning, export)
    labels = set(tuning.runs["label"])
    frame = shares(tuning, ranges(folder.study, settings(tuning), labels))
    status = tuning.runs["status"]
    counts = [f"{(status == s).sum()} {s}" for s in ("finished", "pruned", "diverged", "failed")]
    rows = [
        (row["field"], number(row["share"], ".0%"), _interval(row["low"], row["high"]))
        for row in frame.to_dicts()
    ]
    legend = [
        "share: of the variance of losses within points, by this field alone (fANOVA); the rest "
        "is fields together; diverged runs have no loss",
    ]
    if len(frame) == 1:
        legend.append("one field was searched, so the forest has nothing else to give a share to")
    if written is not None:
        legend.append(f"{written} runs written to {export} as Optuna study {folder.study['name']}")
    report = Report(
        heading=(
            folder.study["question"],
            f"{folder.study['name']}: lowest validation loss up to epoch {tuning.at} of "
            f"{len(status)} tune runs, of which {', '.join(counts)}",
            f"of the variance of these losses, {number(_known(between_points(tuning)), '.0%')} "
            "lies between points",
        ),
        sheets=(Sheet("searched fields", ("field", "share", "95 %"), rows, frozenset({"field"})),),
        legend=tuple(legend),
        frame=frame,
    )
    return render(report, format, width=width, colour=colour)


def _interval(low: float | None, high: float | None) -> str:
    return NONE if low is None else f"{number(low, '.0%')} to {number(high, '.0%')}"


def _known(value: float) -> float | None:
    return value if value == value else None


def main(
    study: Annotated[Path, typer.Argument(help="The folder of a study.")],
    format: Annotated[str, typer.Option(help="table, md, csv, json or latex.")] = "table",
    point: Annotated[str | None, typer.Option(help="Only this point's runs.")] = None,
    at: Annotated[int | None, typer.Option(help="Compare losses up to this epoch.")] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write an Optuna study there: .db or .journal.")
    ] = None,
) -> None:
    """Importance of the searched fields, by fANOVA over the tune runs."""
    width = shutil.get_terminal_size((100, 40)).columns
    colour = sys.stdout.isatty()
    try:
        text = render_importance(
            study, format, point=point, at=at, export=export, width=width, colour=colour
        )
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(text)
