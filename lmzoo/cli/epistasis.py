"""What does each cut cost on average, and do two cuts together cost more than each alone?

    lmzoo epistasis runs/gru_factorial-captions
    lmzoo epistasis runs/gru_factorial-captions --figure epistasis.png
    lmzoo epistasis runs/gru_ablation-captions --format md --metric sentence

Effects of the switches of a cell and the interactions of every two, of test losses, with
intervals over seeds: frames/effects.py says what a row holds, frames/contrasts.py what is
averaged where patterns are missing, frames/mutants.py what a switch is.
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from lmzoo.analysis.effect_table import effect_report
from lmzoo.analysis.effects import effects
from lmzoo.analysis.load import load
from lmzoo.analysis.mutants import read_mutants
from lmzoo.analysis.render import known_format, render
from lmzoo.errors import UserError


def render_epistasis(
    path: str | Path,
    format: str = "table",
    *,
    metric: str = "token",
    figure: Path | None = None,
    width: int = 100,
    colour: bool = False,
) -> str:
    """The effects of the switches in the study in folder `path`, as text.

    Args:
        path: the study's folder.
        format: table, md, csv, json or latex.
        metric: token or sentence.
        figure: where to write the heat maps, as .png, .svg or .html.
        width: columns of the reader's window, for `table`.
        colour: use the terminal's styles, for `table`.

    Raises:
        UserError: nothing is done yet, or a name is unknown.
    """
    known_format(format)
    folder = load(Path(path))
    cells = read_mutants(folder.path, folder, metric)
    frames = [effects(cell) for cell in cells]
    if figure is not None:
        from lmzoo.analysis.heat_map import heat_maps, save_figure

        save_figure(heat_maps(frames, folder.study["question"]), figure)
    report = effect_report(folder, cells, frames, metric)
    return render(report, format, width=width, colour=colour)


def main(
    study: Annotated[Path, typer.Argument(help="The folder of a study.")],
    format: Annotated[str, typer.Option(help="table, md, csv, json or latex.")] = "table",
    metric: Annotated[str, typer.Option(help="token or sentence.")] = "token",
    figure: Annotated[
        Path | None, typer.Option(help="Write heat maps there: .png, .svg or .html.")
    ] = None,
) -> None:
    """Effects and interactions of the switches of each cell."""
    width = shutil.get_terminal_size((100, 40)).columns
    colour = sys.stdout.isatty()
    try:
        text = render_epistasis(
            study, format, metric=metric, figure=figure, width=width, colour=colour
        )
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(text)
