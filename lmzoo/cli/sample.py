"""`sample`: sentences from a trained run, drawn or searched for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from lmzoo.contract import END, Score
from lmzoo.data.vocabulary import SPECIALS
from lmzoo.decode.ancestral import ancestral
from lmzoo.decode.beam import beam_search
from lmzoo.decode.greedy import greedy as likeliest
from lmzoo.errors import UserError
from lmzoo.train.trained import Trained, find_run, open_run

COUNT = 10
"""Sentences that are drawn unless asked otherwise."""


def sample(
    run: Annotated[str, typer.Argument(metavar="RUN_OR_NAME", help="A run's folder as `train` prints it, or a row's name: its latest run.")],
    temperature: Annotated[float | None, typer.Option(min=0.01, help="Draw; below 1: safer; above: wilder. [default: 1]")] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Search with so many beams; prints log-probabilities (nats).")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the likeliest token each time.")] = False,
    top: Annotated[int | None, typer.Option(min=1, help="Draw among so many likeliest tokens.")] = None,
    alpha: Annotated[float | None, typer.Option(min=0.0, help="Beams are ranked by log-probability / length^alpha. [default: 0]")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="How many sentences. [default: 10; all beams]")] = None,
    prefix: Annotated[str, typer.Option(help="How the sentences begin.")] = "",
    source: Annotated[str | None, typer.Option(help="What is to be turned into another sequence, by rows that are given one.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    runs: Annotated[Path, typer.Option(help="Where a name's runs are looked for.")] = Path("runs/single"),
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
) -> None:  # fmt: skip
    """Sentences from the best weights of a trained run; of pairs, for sources of its validation split."""
    if sum((beam is not None, greedy, temperature is not None or top is not None)) > 1:
        raise UserError(
            "--beam, --greedy and --temperature (or --top) exclude one another; give one"
        )
    if alpha is not None and beam is None:
        raise UserError(f"--alpha {alpha:g} is for --beam; give the number of beams as well")
    if beam is not None and count is not None and count > beam:
        raise UserError(
            f"--beam {beam} finds no more than {beam} sentences, --count asks for {count}"
        )
    trained = open_run(find_run(run, runs), data_dir)
    start = begin(trained, prefix)
    length = trained.corpus.task.length
    generator = torch.Generator().manual_seed(seed)
    one_each = trained.model.conditional and source is None
    if source is None:
        every = sources(trained, count or COUNT)
    else:
        every = iter([("", own_source(trained, source))])
    for said, given in every:
        if beam is not None:
            found = beam_search(
                trained.model, length, beam, alpha=alpha or 0.0, prefix=start, given=given
            )
            for hypothesis in found[: 1 if one_each else count]:
                show(trained, hypothesis.tokens, f"{said}{hypothesis.log_prob:9.3f}  ")
            continue
        if greedy:
            tokens = likeliest(trained.model, length, prefix=start, given=given)
        else:
            tokens = ancestral(
                trained.model, 1 if one_each else count or COUNT, length,
                temperature=temperature or 1.0, top=top, prefix=start, given=given, generator=generator,
            )  # fmt: skip
        for row in tokens.tolist():
            show(trained, row, said)


def begin(trained: Trained, prefix: str) -> list[int]:
    """The ids of the prefix.

    Raises:
        UserError: the model does not tell a next token, or cannot go on from this prefix.
    """
    model, vocabulary = trained.model, trained.corpus.vocabulary
    if not model.causal:
        raise UserError(
            f"{trained.row} does not read from left to right: nothing can be drawn from it"
        )
    if model.leaks:
        raise UserError(f"{trained.row} has no next token to draw: {model.leaks}")
    if model.score is Score.OBJECTIVE:
        raise UserError(
            f"{trained.row} gives no probability to a sequence: nothing can be drawn from it"
        )
    words = prefix.split() if vocabulary.joiner else list(prefix)
    for word in words:
        if word not in vocabulary.ids:
            raise UserError(f"--prefix: {word!r} is not in the vocabulary of {trained.corpus.name}")
    room = trained.corpus.task.length - 2
    if len(words) > room:
        raise UserError(
            f"--prefix has {len(words)} tokens, {trained.corpus.name} has room for {room}"
        )
    return vocabulary.encode(words)


def sources(trained: Trained, count: int) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """What is shown before a sentence, and given to the model: nothing, unless it translates."""
    vocabulary, part = trained.corpus.source_vocabulary, trained.corpus.valid
    if not trained.model.conditional or vocabulary is None:
        yield "", ()
        return
    for row in range(min(count, len(part))):
        source, lengths = (column[row : row + 1] for column in part.given)
        yield f"{vocabulary.decode(source[0].tolist())}  →  ", (source[:, : int(lengths)], lengths)


def own_source(trained: Trained, text: str) -> tuple[Tensor, Tensor]:
    """The user's source as the corpus would encode it: tokens (1, S), lengths (1).

    Raises:
        UserError: the row reads no source, or the source is empty, unknown or too long.
    """
    vocabulary, corpus = trained.corpus.source_vocabulary, trained.corpus
    if not trained.model.conditional or vocabulary is None:
        raise UserError(
            f"--source: {trained.row} is given none; --prefix is what a sentence begins with"
        )
    words = text.split() if vocabulary.joiner else list(text)
    if not words:
        raise UserError("--source is empty; give what is to be turned into another sequence")
    for word in words:
        if word not in vocabulary.ids or word in SPECIALS:
            raise UserError(
                f"--source: {word!r} is not in the vocabulary of {corpus.name}'s sources"
            )
    end = [END] if bool((corpus.valid.given[0] == END).any()) else []
    room = corpus.task.source_length - len(end)
    if len(words) > room:
        raise UserError(f"--source has {len(words)} tokens, {corpus.name} has room for {room}")
    ids = [*vocabulary.encode(words), *end]
    return torch.tensor([ids]), torch.tensor([len(ids)])


def show(trained: Trained, tokens: list[int] | tuple[int, ...], before: str) -> None:
    """One sentence, one line."""
    typer.echo(before + trained.corpus.vocabulary.decode(tokens))
