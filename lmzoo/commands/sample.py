"""`sample`: sentences from a trained run."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from lmzoo.decode.ancestral import ancestral
from lmzoo.trained import open_run


def sample(
    run: Annotated[Path, typer.Argument(help="A run's folder, as `train` prints it.")],
    count: Annotated[int, typer.Option(min=1, help="How many sentences.")] = 10,
    temperature: Annotated[float, typer.Option(min=0.01, help="Below 1: safer; above: wilder.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
) -> None:  # fmt: skip
    """Draw sentences from the best weights of a trained run."""
    trained = open_run(run, data_dir)
    model, corpus = trained.model, trained.corpus
    generator = torch.Generator().manual_seed(seed)
    tokens = ancestral(
        model, count, corpus.task.length, temperature=temperature, generator=generator
    )
    for row in tokens.tolist():
        typer.echo(corpus.vocabulary.decode(row))
