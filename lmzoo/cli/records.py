"""`lmzoo records`: the records of a study in one file, and back."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Action(StrEnum):
    """What to do with the records."""

    SAVE = "save"
    RESTORE = "restore"


def records(
    action: Annotated[Action, typer.Argument(help="save STORE FILE, or restore FILE STORE.")],
    source: Annotated[Path, typer.Argument(help="What is read.")],
    target: Annotated[Path, typer.Argument(help="What is written.")],
    with_sequences: Annotated[bool, typer.Option("--with-sequences", help="Also save the loss of every test sequence, for `lmzoo compare`.")] = False,
) -> None:  # fmt: skip
    """Save the records of a study as one Parquet file, or restore them.

    The file has all configs and losses, and no checkpoints. Tables read it like a folder:
    `lmzoo rank FILE.parquet`. A sweep in the restored store trains only the runs that are missing.
    """
    from lmzoo.analysis.study_parquet import restore_study, save_study

    if action is Action.SAVE:
        size = save_study(source, target, with_sequences=with_sequences)
        typer.echo(f"{target}: {size / 1000:.0f} kB")
    else:
        typer.echo(f"{target}: {restore_study(source, target)} runs")
