"""`sample`: sentences from a trained run."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from lmzoo import zoo
from lmzoo.contract import MODELS
from lmzoo.data.open import open_corpus
from lmzoo.decode.ancestral import ancestral
from lmzoo.errors import UserError
from lmzoo.record import RunFolder


def sample(
    run: Annotated[Path, typer.Argument(help="A run's folder, as `train` prints it.")],
    count: Annotated[int, typer.Option(min=1, help="How many sentences.")] = 10,
    temperature: Annotated[float, typer.Option(min=0.01, help="Below 1: safer; above: wilder.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
) -> None:  # fmt: skip
    """Draw sentences from the best weights of a trained run."""
    folder = RunFolder(run)
    config = folder.config
    if config is None or not folder.checkpoint.exists():
        raise UserError(
            f"{run} is not the folder of a trained run; `python -m lmzoo train` makes one"
        )
    corpus = open_corpus(config["corpus"], data_dir)
    if corpus.fingerprint != config["fingerprint"]:
        raise UserError(
            f"corpus {corpus.name} is not the one the run was trained on; give its --data-dir"
        )
    model = zoo.build(MODELS.read(config["model"]), corpus.task)
    state = torch.load(folder.checkpoint, weights_only=True)
    model.load_state_dict(state["best"]["weights"])
    generator = torch.Generator().manual_seed(seed)
    tokens = ancestral(
        model, count, corpus.task.length, temperature=temperature, generator=generator
    )
    for row in tokens.tolist():
        typer.echo(corpus.vocabulary.decode(row))
