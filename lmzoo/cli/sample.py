"""`lmzoo sample`: sentences from a trained run, by sampling, greedy decoding or beam search."""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from lmzoo import decode
from lmzoo.base.errors import UserError
from lmzoo.base.memory import allocating
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.base.streams import echo
from lmzoo.cli.common import DataDir, open_run
from lmzoo.contract import END, Score
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.lab.cli.run_names import RUN_HELP, Runs, find_run
from lmzoo.lab.cli.tables import AsJson
from lmzoo.lab.store.records import RUNS
from lmzoo.train.trained import TrainedRun

COUNT = 10
"""Default number of sentences."""


def sample(
    run: Annotated[str, typer.Argument(metavar="RUN_OR_ROW", help=f"{RUN_HELP}, or a row (its latest run).")],
    temperature: Annotated[float | None, typer.Option(min=0.01, help="Sample with this temperature: below 1 closer to the most likely tokens, above 1 more random. Default: 1.")] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Search with this number of beams and print log-probabilities in nats.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most likely token at every step.")] = False,
    top: Annotated[int | None, typer.Option(min=1, help="Sample from this number of most likely tokens.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Number of sentences. Default: 10, or all beams.")] = None,
    length: Annotated[int | None, typer.Option(min=1, max=100_000, help="Tokens of a sentence at most. Default: those of the training.")] = None,
    prefix: Annotated[str, typer.Option(help="Text with which the sentences begin.")] = "",
    source: Annotated[str | None, typer.Option(help="Source text, for rows that read one.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the samples.")] = 0,
    runs: Runs = RUNS,
    data_dir: DataDir = None,
    as_json: AsJson = False,
):  # fmt: skip
    """Generate sentences with the best weights of a trained run.

    A row that reads a source gets the sources of the validation split, unless --source is given.
    """
    has_beam = beam is not None
    draws = temperature is not None
    if top is not None:
        draws = True
    if has_beam + greedy + draws > 1:
        raise UserError(
            "--beam, --greedy and --temperature (or --top) exclude one another; give one"
        )
    if beam is not None and count is not None and count > beam:
        raise UserError(f"--beam {beam} finds at most {beam} sentences, fewer than --count {count}")
    trained = open_run(find_run(run, runs), data_dir)
    # Before anything is drawn: it refuses models that cannot generate.
    begin: FieldsDict = {"prefix": encode_prefix(trained, prefix)}
    room = trained.corpus.task.length
    if length is not None:
        room = length + 1  # with <start>
    if source is None:
        inputs = validation_sources(trained, count or COUNT)
        if trained.model.conditional:  # one sentence for each source
            count = 1
    else:
        inputs = iter([("", encode_source(trained, source))])
    if greedy:  # all sentences would be equal
        count = 1
        temperature = 0.0
    elif temperature is None:
        temperature = 1.0
    # Not the global one: the same seed gives the same sentences.
    generator = torch.Generator().manual_seed(seed)
    draw = {"temperature": temperature, "top": top, "generator": generator}
    found = list[FieldsDict]()
    for origin, sources in inputs:
        begin["sources"] = sources
        if beam is None:
            drawn = _drawn(trained, count or COUNT, room, **begin, **draw)
        else:
            drawn = _searched(trained, beam, room, **begin)[:count]
        for row, log_prob in drawn:
            text = trained.corpus.vocabulary.decode(row)
            found.append({"source": origin, "text": text, "log_prob": log_prob})
    if as_json:
        echo(json.dumps(found, indent=1))
    else:
        _print(found)


Drawn = list[tuple[Sequence[int], float | None]]
"""Tokens of sentences, and their log-probabilities if they were searched."""


def _drawn(trained: TrainedRun, count: int, room: int, **options: Any) -> Drawn:
    # The option that a user can make smaller.
    with allocating(f"--count {count}"):
        tokens = decode.sample(trained.model, count, room, **options)
    return [(row, None) for row in tokens.tolist()]


def _searched(trained: TrainedRun, beam: int, room: int, **options: Any) -> Drawn:
    with allocating(f"--beam {beam}"):
        found = decode.beam_search(trained.model, room, beam, **options)
    return [(each.tokens, each.log_prob) for each in found]


def _print(found: Sequence[Fields]):
    # Without a rule, a reader cannot see where a sample of several lines ends.
    rule = ""
    if any("\n" in sentence["text"] for sentence in found):
        rule = "---\n"
    for sentence in found:
        echo(rule + shown(**sentence))


def shown(source: str, text: str, log_prob: float | None) -> str:
    """Return the line of a sentence."""
    line = text
    if log_prob is not None:
        line = f"{log_prob:9.3f}  {line}"
    if source:
        line = f"{source}  →  {line}"
    return line


def encode_prefix(trained: TrainedRun, prefix: str) -> list[int]:
    """Return the token ids of a prefix; refuse a model without a next-token distribution."""
    model = trained.model
    vocabulary = trained.corpus.vocabulary
    if model.leaks:
        raise UserError(f"{trained.row_name} has no next-token distribution: {model.leaks}")
    if not model.generates:
        reason = "it scores a training objective that is no probability of the sequence"
        if model.score is not Score.OBJECTIVE:
            reason = "it does not score from left to right"
        raise UserError(f"{trained.row_name} cannot generate, because {reason}")
    # <start> and one token at least that is drawn.
    room = trained.corpus.task.length - 2
    return encode_text("--prefix", prefix, vocabulary, trained.corpus.name, room, special=True)


def encode_text(
    option: str, text: str, vocabulary: Vocabulary, corpus: str, room: int, *, special: bool = False
) -> list[int]:
    """Return the token ids of the text of an option, without `<start>` and `<end>`.

    Unknown tokens are refused, special ones without `special`, and more than `room`.
    """
    tokens = vocabulary.split(text)
    for token in tokens:
        # A typing error would be scored as <unk>.
        if token not in vocabulary.ids or (token in SPECIALS and not special):
            raise UserError(f"{option}: {token!r} is not in the vocabulary of {corpus}")
    if len(tokens) > room:
        raise UserError(f"{option} has {len(tokens)} tokens; the limit of {corpus} is {room}")
    return vocabulary.encode(tokens)


def validation_sources(trained: TrainedRun, count: int) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Yield the text and the model inputs of validation sources; one empty pair without sources."""
    vocabulary = trained.corpus.source_vocabulary
    part = trained.corpus.valid
    if not trained.model.conditional or vocabulary is None:
        yield "", ()
        return
    for row in range(min(count, len(part))):
        source, lengths = (column[row : row + 1] for column in part.sources)
        yield vocabulary.decode(source[0].tolist()), (source[:, : int(lengths)], lengths)


def encode_source(trained: TrainedRun, text: str) -> tuple[Tensor, Tensor]:
    """Encode a source text as the corpus does: tokens (1, S) and lengths (1).

    A `UserError` says that the row reads no source, or that the text is empty, unknown or too long.
    """
    corpus = trained.corpus
    vocabulary = corpus.source_vocabulary
    if not trained.model.conditional or vocabulary is None:
        raise UserError(
            f"--source: {trained.row_name} reads no source; use --prefix for a first part"
        )
    end = []
    if (corpus.valid.sources[0] == END).any():  # the sources of this corpus end with it
        end.append(END)
    room = corpus.task.source_length - len(end)
    ids = encode_text("--source", text, vocabulary, f"the sources of {corpus.name}", room)
    if not ids:
        raise UserError("--source is empty; give the text of a source")
    ids += end
    return torch.tensor([ids]), torch.tensor([len(ids)])
