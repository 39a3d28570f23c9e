"""S0's printed tables beside ours: what was claimed, what we measure, and why they differ.

    lmzoo published runs/*
    lmzoo published runs/gru_ablation-multi30k_en --format md --table multi30k_word
    lmzoo published runs/gru_ablation-captions --any-corpus

Runs are found by their config in whatever study folders are given, each once; of several
folders, those that are no study are named and left out. A row that none of them holds is
shown as not run. To fill a table, run its study both ways, into two stores, as a store keeps
what was asked of a study last:

    python sweeps/gru_ablation.py --corpus multi30k_en --set corpus.split=seed --epochs 20
    python sweeps/gru_ablation.py --corpus multi30k_en --set corpus.split=seed --epochs 20 \
        --recipe published --set model.norm=time_std --search-space recipe.lr=off \
        --storage runs/published
    lmzoo published runs/*multi30k_en runs/published/*

frames/reproduction.py says what is compared, frames/seed_rows.py which run is which row.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from lmzoo.analysis.load import load
from lmzoo.analysis.published_rows import TABLES
from lmzoo.analysis.published_table import verdicts
from lmzoo.analysis.render import known_format, render
from lmzoo.analysis.reproduction import reproduction
from lmzoo.errors import UserError
from lmzoo.store.records import STUDY


def render_published(
    paths: Sequence[Path],
    format: str = "table",
    *,
    table: str | None = None,
    any_corpus: bool = False,
    width: int = 120,
    colour: bool = False,
) -> str:
    """Each of S0's tables beside the runs of these study folders, as text.

    Raises:
        UserError: a folder is not a study's, or a name is unknown.
    """
    known_format(format)
    names = [each.name for each in TABLES]
    if table is not None and table not in names:
        raise UserError(f"no table {table!r}; S0 printed: {', '.join(names)}")
    studies = [load(path) for path in paths]
    wanted = [each for each in TABLES if table in (None, each.name)]
    found = [(each, reproduction(each, studies, any_corpus=any_corpus)) for each in wanted]
    return render(verdicts(found), format, width=width, colour=colour)


def main(
    studies: Annotated[list[Path] | None, typer.Argument(help="Folders of studies.")] = None,
    format: Annotated[str, typer.Option(help="table, md, csv, json or latex.")] = "table",
    table: Annotated[str | None, typer.Option(help="One table: multi30k_word, ...")] = None,
    any_corpus: Annotated[
        bool, typer.Option("--any-corpus", help="Take runs on other data: only the order counts.")
    ] = False,
) -> None:
    """Put S0's printed tables beside our runs of their rows."""
    width = max(shutil.get_terminal_size((120, 40)).columns, 100)
    colour = sys.stdout.isatty()
    try:
        paths = list(_studies(studies or []))
        text = render_published(
            paths, format, table=table, any_corpus=any_corpus, width=width, colour=colour
        )
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(text)


def _studies(paths: Sequence[Path]) -> Iterator[Path]:
    """The paths, without those that hold no study where others do: what `runs/*` means."""
    others = [path for path in paths if path.exists() and not (path / STUDY).exists()]
    if len(others) == len(paths):  # what is wrong with the first is said
        others = []
    for path in paths:
        if path in others:
            typer.echo(f"left out, as it holds no {STUDY}: {path}", err=True)
        else:
            yield path
