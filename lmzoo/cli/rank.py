"""Which point won, by how much, and how sure can we be?

    lmzoo rank runs/gru_ablation-captions
    lmzoo rank runs/gru_ablation-captions --format md --metric sentence
    lmzoo rank runs/gru_ablation-captions --at 5

A study's confirm runs, ranked by test loss: frames/ranking.py says what a row holds,
frames/statistics.py what its intervals mean.
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from lmzoo.analysis.load import load
from lmzoo.analysis.ranking import ranking
from lmzoo.analysis.ranking_table import standings
from lmzoo.analysis.render import known_format, render
from lmzoo.errors import UserError


def render_study(
    path: str | Path,
    format: str = "table",
    *,
    metric: str = "token",
    at: int | None = None,
    width: int = 100,
    colour: bool = False,
) -> str:
    """The ranking of the study in folder `path`, as text.

    Args:
        path: the study's folder.
        format: table, md, csv, json or latex.
        metric: token or sentence.
        at: rank by the validation loss at this epoch, not by the test loss.
        width: columns of the reader's window, for `table`.
        colour: use the terminal's styles, for `table`.

    Raises:
        UserError: nothing can be ranked, or a name is unknown.
    """
    known_format(format)
    folder = load(Path(path))
    frame = ranking(folder.runs, folder.events, folder.study, metric=metric, at=at)
    return render(standings(folder, frame), format, width=width, colour=colour)


def main(
    study: Annotated[Path, typer.Argument(help="The folder of a study.")],
    format: Annotated[str, typer.Option(help="table, md, csv, json or latex.")] = "table",
    metric: Annotated[str, typer.Option(help="token or sentence.")] = "token",
    at: Annotated[
        int | None, typer.Option(help="Rank by validation at this epoch, not by test.")
    ] = None,
) -> None:
    """Rank the points of a study."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((100, 40)).columns
    try:
        text = render_study(study, format, metric=metric, at=at, width=width, colour=terminal)
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(text)
